"""Builds the wheel of the Python package: the back end that pyproject.toml names (PEP 517). It needs CMake, Ninja, and the
packages of scripts/packages.txt, and no other Python package. CMAKE_ARGS has more options for CMake:

    CMAKE_ARGS=-DLOCKSTEP_MPI=OFF pip install .

The setting build-dir is a folder for the build, which keeps its options if it is configured:

    pip wheel . --config-settings build-dir=build
"""

import base64
import hashlib
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = re.search(r'define LOCKSTEP_VERSION "(.*)"', (ROOT / "lockstep/base/version.h").read_text())[1]
INFO = f"{PROJECT['name']}-{VERSION}.dist-info"


def tag():
    """The tag of wheels for this Python on this system: it links the system's libraries, so it is for no other."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return "-".join([python, python + getattr(sys, "abiflags", ""), re.sub("[-.]", "_", sysconfig.get_platform())])


def metadata():
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {PROJECT['name']}",
        f"Version: {VERSION}",
        f"Summary: {PROJECT['description']}",
        f"Requires-Python: {PROJECT['requires-python']}",
        f"License: {PROJECT['license']['text']}",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (ROOT / PROJECT["readme"]).read_text()


def wheel_file():
    return f"Wheel-Version: 1.0\nGenerator: lockstep_wheel\nRoot-Is-Purelib: false\nTag: {tag()}\n"


def compile_package(prefix, settings):
    """Builds the package and installs it into the folder `prefix`. Returns the folder in which it is there, and what it
    is made of, in SPDX."""
    build = ROOT / settings.get("build-dir", f"build-wheel-{tag()}")
    options = []
    if not (build / "CMakeCache.txt").exists():
        options += ["-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_UNITY=ON", "-DLOCKSTEP_TOOL=OFF", "-DLOCKSTEP_TESTS=OFF",
                    "-DLOCKSTEP_EXAMPLES=OFF", "-DLOCKSTEP_PYTHON=ON", f"-DPython3_EXECUTABLE={sys.executable}"]
        if shutil.which("ccache"):
            options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    options += shlex.split(os.environ.get("CMAKE_ARGS", ""))
    # What the back end prints is pip's, which shows it with --verbose and after a failure.
    for command in (["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options],
                    ["cmake", "--build", build, "--target", "lockstep_python_stubs"],
                    ["cmake", "--install", build, "--component", "python", "--strip", "--prefix", prefix]):
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            raise SystemExit(f"lockstep: {command[0]} is missing; scripts/packages.txt lists what the build needs")
    return next(pathlib.Path(prefix).rglob("lockstep/_core*.so")).parents[1], (build / "lockstep.spdx.json").read_bytes()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        folder, sbom = compile_package(folder, config_settings or {})
        files = {path.relative_to(folder).as_posix(): path.read_bytes()
                 for path in folder.rglob("*") if path.is_file()}
    files[f"{INFO}/METADATA"] = metadata().encode()
    files[f"{INFO}/WHEEL"] = wheel_file().encode()
    files[f"{INFO}/sboms/lockstep.spdx.json"] = sbom  # PEP 770
    files[f"{INFO}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{INFO}/RECORD"] = f"{record}{INFO}/RECORD,,\n".encode()
    name = f"{PROJECT['name']}-{VERSION}-{tag()}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in sorted(files.items(), key=lambda item: (item[0].startswith(INFO), item[0])):  # PEP 427: last
            entry = zipfile.ZipInfo(path, time.gmtime(max(_date(), 315532800))[:6])
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory, INFO)
    folder.mkdir()
    (folder / "METADATA").write_text(metadata())
    (folder / "WHEEL").write_text(wheel_file())
    return INFO


def build_sdist(sdist_directory, config_settings=None):
    """The tree as a tar archive: the files that git knows, or those of an archive that was unpacked."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True)
    if listed.returncode == 0 and listed.stdout:
        files = listed.stdout.decode().rstrip("\0").split("\0")
    else:
        files = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()]
        files = [path for path in files if not path.startswith(("build", "PKG-INFO"))]
    base = f"{PROJECT['name']}-{VERSION}"
    with tarfile.open(os.path.join(sdist_directory, base + ".tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            if (ROOT / path).exists():
                archive.add(ROOT / path, f"{base}/{path}", recursive=False, filter=_plain)
        data = metadata().encode()
        entry = _plain(tarfile.TarInfo(f"{base}/PKG-INFO"))
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return base + ".tar.gz"


def _date():
    return int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))


def _plain(entry):
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = _date(), 0, 0, "", ""
    return entry


def _hash(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
