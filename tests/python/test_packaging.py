"""The recipes of scripts/packaging against what the build knows: options, version, what is installed."""

import importlib.util
import pathlib
import re
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "scripts/packaging"
VERSION = re.search(r"project\(loratrain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def cmake_names():
    """Options and cache variables that the build reads."""
    text = "".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *(ROOT / "scripts/cmake").glob("*.cmake")])
    return set(re.findall(r"(?:option|set)\(\s*(\w+)", text)) | {"CMAKE_CUDA_ARCHITECTURES"}


class Spec:
    """As much of Spack's as cmake_args() asks for."""

    def __init__(self, wanted, gemm):
        self.wanted = wanted
        self.variants = {"gemm": types.SimpleNamespace(value=gemm),
                         "cuda_arch": types.SimpleNamespace(value=("90",))}

    def satisfies(self, what):
        return what in self.wanted


def load_spack_package():
    """package.py with directives that note what they were given."""
    noted = {}

    def directive(name):
        return lambda *words, **options: noted.setdefault(name, []).append((words, options))

    def decorator(*_, **__):
        return lambda function: function

    names = {name: directive(name) for name in ("version", "variant", "depends_on", "requires", "generator")}
    names.update(run_after=decorator, on_package_attributes=decorator, join_path=lambda *p: "/".join(p),
                 Executable=None)
    stubs = {"spack": {}, "spack.package": names, "spack_repo": {}, "spack_repo.builtin": {},
             "spack_repo.builtin.build_systems": {},
             "spack_repo.builtin.build_systems.cmake": {"CMakePackage": type("CMakePackage", (), {})},
             "spack_repo.builtin.build_systems.cuda": {"CudaPackage": type("CudaPackage", (), {})}}
    saved = {name: sys.modules.get(name) for name in stubs}
    try:
        for name, contents in stubs.items():
            module = types.ModuleType(name)
            vars(module).update(contents)
            sys.modules[name] = module
        spec = importlib.util.spec_from_file_location(
            "package", PACKAGING / "spack/packages/loratrain/package.py")
        package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return package.Loratrain, noted


class SpackPackage(unittest.TestCase):
    def test_options_are_those_of_the_build(self):
        package_class, noted = load_spack_package()
        variants = {words[0] for words, _ in noted["variant"]}
        for wanted, gemm in ((set(), "openblas"), ({"+cuda"}, "onednn")):
            package = package_class()
            package.spec = Spec(wanted, gemm)
            package.define = lambda name, value: (name, value)
            package.define_from_variant = lambda name, variant: (name, variant)
            given = dict(package.cmake_args())
            self.assertEqual(set(given) - cmake_names(), set())
            self.assertEqual(given["LORATRAIN_CUDA"], "ON" if wanted else "OFF")
            self.assertEqual(given["LORATRAIN_CPU_GEMM"], gemm)
            self.assertLessEqual({given["LORATRAIN_CBC"], given["LORATRAIN_NATIVE"]}, variants)
        self.assertEqual([words[0] for words, _ in noted["version"]], [VERSION])

    def test_depends_on_what_the_build_finds(self):
        _, noted = load_spack_package()
        depends = {re.split(r"[@+~:]", words[0])[0] for words, _ in noted["depends_on"]}
        self.assertLessEqual({"mpi", "hdf5", "yaml-cpp", "boost", "nlohmann-json", "onednn", "cbc", "nccl"}, depends)


class EasyBuildConfig(unittest.TestCase):
    def setUp(self):
        (self.path,) = (PACKAGING / "easybuild").glob("*.eb")
        self.config = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz"}
        exec(compile(self.path.read_text(), self.path, "exec"), self.config)

    def test_name_and_version(self):
        toolchain = self.config["toolchain"]
        self.assertEqual(self.config["version"], VERSION)
        self.assertEqual(self.path.stem, f"loratrain-{VERSION}-{toolchain['name']}-{toolchain['version']}")

    def test_options_are_those_of_the_build(self):
        given = set(re.findall(r"-D(\w+)=", self.config["configopts"]))
        self.assertEqual(given - cmake_names(), set())


class ApptainerDefinition(unittest.TestCase):
    def test_builds_as_this_repository_does(self):
        text = (PACKAGING / "apptainer/loratrain.def").read_text()
        self.assertIn("scripts/install_packages.sh", text)
        self.assertEqual(set(re.findall(r"-D(\w+)=", text)) - cmake_names(), set())


class DefaultBuild(unittest.TestCase):
    """What users build, who have compilers that nobody tried."""

    def test_warnings_are_errors_by_choice(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        self.assertRegex(text, r'option\(LORATRAIN_WERROR "[^"]*" OFF\)')
        self.assertRegex(text, r'option\(LORATRAIN_UNITY "[^"]*" ON\)')
        self.assertNotIn("-Werror", text)

    def test_visits_to_gpus_build_it(self):
        text = (ROOT / "scripts/gpu_visit.sh").read_text()
        for option in ("LORATRAIN_WERROR", "LORATRAIN_UNITY", "CMAKE_CXX_FLAGS"):
            self.assertNotIn(option, text)


class Version(unittest.TestCase):
    def test_pages_have_the_version_of_the_build(self):
        changes = (ROOT / "src/CHANGELOG.md").read_text()
        self.assertEqual(re.search(r"^## (\S+)", changes, re.MULTILINE)[1], VERSION)
        for page in ("jobs/README.md", "scripts/packaging/README.md"):
            named = set(re.findall(r"(?:loratrain[ @-]|version = {)(\d+\.\d+\.\d+)", (ROOT / page).read_text()))
            self.assertEqual(named, {VERSION}, page)


if __name__ == "__main__":
    unittest.main()
