"""The check of names in anonymous namespaces finds what it should."""
from __future__ import annotations

import sys
import tempfile
import unittest
import unittest.mock
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

    def test_functions_of_headers(self) -> None:
        text = """#pragma once
namespace loratrain {

/// comment(text)
std::vector<int> order_of(const Plan& plan,
                          int first);
inline bool is_even(int number) {
    return inner(number) == 0;
}
struct Plan {
    int member() const;
};

namespace log {
void info(const std::string& text);
}  // namespace log

template <class T>
T after(T value);

}  // namespace loratrain
void outside();
"""
        self.assertEqual(check_names.declared_functions(text), {"order_of", "is_even", "after"})

    def test_finds_names_of_headers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("src/plan/a.h", "namespace loratrain {\nint count(int a);\n}  // namespace loratrain\n"),
                               ("src/base/text.h", "namespace loratrain {\nint cut(int a);\nint join();\n}  // namespace loratrain\n"),
                               ("src/base/log.h", "namespace loratrain {\nint given();\n}  // namespace loratrain\n"),
                               ("src/plan/b.cpp", '#include "base/text.h"\nnamespace {\nint count() { return 1; }\n'
                                                  "int cut() { return 1; }\nint given() { return 1; }\n}  // namespace\n")):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            with unittest.mock.patch.object(check_names, "ROOT", root):
                lines = check_names.hidden_functions(root / "src/plan")
        self.assertEqual([line.split(";")[0] for line in lines],
                         ["cut: in an anonymous namespace of src/plan/b.cpp, and a function of src/base/text.h",
                          "count: in an anonymous namespace of src/plan/b.cpp, and a function of src/plan/a.h"])


if __name__ == "__main__":
    unittest.main()
