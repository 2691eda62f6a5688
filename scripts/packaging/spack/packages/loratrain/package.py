# Spack (1.0 or later) package of loratrain; scripts/packaging/README.md says how it is used.
from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Loratrain(CMakePackage, CudaPackage):
    """Fine-tunes many LoRA adapters of one frozen large language model at once, over MPI, on GPUs or
    CPU cores."""

    # Made by `cmake --build build --target package_source`; there is no public download.
    manual_download = True
    url = "file:///loratrain-0.2.0.tar.gz"

    version("0.2.0")

    variant("cbc", default=True, description="Pack microbatches with the MILP solver COIN-OR CBC")
    variant("nccl", default=True, when="+cuda", description="Several GPUs through NCCL")
    variant("native", default=False, description="For the build machine's processor alone")
    variant("gemm", default="onednn", values=("onednn", "openblas"), multi=False,
            description="Matrix products of the CPU backend")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5")
    depends_on("yaml-cpp")
    depends_on("boost+program_options")
    depends_on("nlohmann-json")
    depends_on("onednn", when="gemm=onednn")
    depends_on("openblas", when="gemm=openblas")
    depends_on("cbc", when="+cbc")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")
    depends_on("python@3.11:", type="run")

    requires("%gcc@12:", "%clang@17:", policy="one_of", msg="C++20")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("LORATRAIN_TESTS", "OFF"),
            self.define("LORATRAIN_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("LORATRAIN_CPU_GEMM", self.spec.variants["gemm"].value),
            self.define_from_variant("LORATRAIN_CBC", "cbc"),
            self.define_from_variant("LORATRAIN_NATIVE", "native"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def setup_run_environment(self, env):
        share = join_path(self.prefix.share, "loratrain")
        env.set("LORATRAIN_ROOT", share)
        env.prepend_path("PATH", join_path(share, "scripts"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_installation(self):
        Executable(join_path(self.prefix.bin, "loratrain"))("selftest")
