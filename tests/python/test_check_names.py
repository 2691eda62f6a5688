"""The check of names in anonymous namespaces finds what it should."""
from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_names  # noqa: E402


class CheckNames(unittest.TestCase):
    def test_declarations(self) -> None:
        text = """void outside(int a);
namespace {

constexpr double width = 1.0;
const char* const names[] = {"a"};
enum class Colour { red };
using Bins = std::vector<int>;
/// comment(text)
template <class T>
std::vector<T> sorted(const std::vector<T>& values) {
    const int inside = 1;
}
class Reader final : public Base {
};

}  // namespace
int after(int a) { return a; }
"""
        self.assertEqual(check_names.declared_names(text),
                         {"width", "names", "Colour", "Bins", "sorted", "Reader"})


if __name__ == "__main__":
    unittest.main()
