"""For Spack: the Python package. Never run by Spack: packaging/README.md."""

from spack.package import *
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage


class PyGpufetch(PythonPackage, CudaPackage):
    """GPU arrays into NumPy, HDF5 and notebooks, fast."""

    homepage = "https://pypi.org/project/gpufetch/"
    pypi = "gpufetch/gpufetch-0.1.0.tar.gz"

    license("BSD-3-Clause")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("pkgconfig", type="build")
    depends_on("meson@1.3:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-meson-python@0.17:", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-h5py@3.11:", type=("build", "run"))
    depends_on("py-ml-dtypes@0.5:", type=("build", "run"))
    depends_on("hdf5@1.10.3:")
    depends_on("jansson@2.11:")
    depends_on("libzmq@4.3:")
    depends_on("openssl@3:")
    depends_on("cuda@12:", when="+cuda")

    def config_settings(self, spec, prefix):
        features = ["hdf5", "jansson", "serve"]
        is_cuda = spec.satisfies("+cuda")
        options = [f"-D{name}=enabled" for name in features]
        options.append(f"-Dcuda={'enabled' if is_cuda else 'disabled'}")
        if is_cuda and spec.variants["cuda_arch"].value != ("none",):
            options.append(f"-Dgpu_architectures={','.join(spec.variants['cuda_arch'].value)}")
        return {"setup-args": options}
