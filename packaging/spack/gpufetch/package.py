"""For Spack: the C libraries and the HDF5 plugin. Never run by Spack: packaging/README.md."""

from spack.package import *
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.meson import MesonPackage


class Gpufetch(MesonPackage, CudaPackage):
    """GPU arrays into host memory, HDF5 files and notebooks, fast."""

    homepage = "https://pypi.org/project/gpufetch/"
    pypi = "gpufetch/gpufetch-0.1.0.tar.gz"

    license("BSD-3-Clause")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("serve", default=True, description="Notebooks attach to programs that run")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("meson@1.3:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5@1.10.3:")
    depends_on("jansson@2.11:", when="+serve")
    depends_on("libzmq@4.3:", when="+serve")
    depends_on("openssl@3:", when="+serve")
    depends_on("cuda@12:", when="+cuda")

    conflicts("platform=darwin", msg="gpufetch is for Linux")
    conflicts("platform=windows", msg="gpufetch is for Linux")

    def meson_args(self):
        def feature(name, is_wanted):
            return f"-D{name}={'enabled' if is_wanted else 'disabled'}"

        is_served = self.spec.satisfies("+serve")
        arguments = [
            feature("cuda", self.spec.satisfies("+cuda")),
            feature("hdf5", True),
            feature("jansson", is_served),
            feature("serve", is_served),
        ]
        if self.spec.satisfies("+cuda"):
            architectures = self.spec.variants["cuda_arch"].value
            if architectures != ("none",):
                arguments.append(f"-Dgpu_architectures={','.join(architectures)}")
        return arguments

    def setup_run_environment(self, env):
        env.prepend_path("HDF5_PLUGIN_PATH", join_path(self.prefix.lib, "hdf5", "plugin"))
