# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel from a build tree: wheel.py BUILD_DIR OUTPUT_DIR
Says what the libraries of a wheel are now, after auditwheel has changed them: wheel.py --manifests WHEEL

The tree was configured without tests and with TESSERA_STATIC_CLANG. The package holds the library, its plugins and configs as
an installation has them, under tessera/lib and tessera/share. auditwheel then adds what the libraries need beyond manylinux.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TAG = "cp310-abi3-linux_x86_64"


def project():
    import tomllib

    with open(HERE / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]


def version(build):
    text = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", text, re.M).group(1)


def stage(build, root):
    """The package as it is to lie in site-packages."""
    package = root / "tessera"
    with tempfile.TemporaryDirectory() as prefix:
        for component in ([], ["--component", "python"]):
            subprocess.run(
                ["cmake", "--install", build, "--prefix", prefix, "--strip", *component], check=True, stdout=subprocess.DEVNULL
            )
        installed = pathlib.Path(prefix)
        lib = next(p.parent for p in installed.rglob("libtessera.so"))
        shutil.copytree(lib, package / "lib", ignore=shutil.ignore_patterns("*.a", "cmake", "pkgconfig"))
        shutil.copytree(installed / "share" / "tessera" / "configs", package / "share" / "tessera" / "configs")
        shutil.copy(next(installed.rglob("_core.abi3.so")), package / "_core.abi3.so")
        shutil.rmtree(package / "lib" / "tessera" / "python")
    for path in sorted((HERE / "tessera").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            target = package / path.relative_to(HERE / "tessera")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def metadata(build):
    p = project()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {p['name']}",
        f"Version: {version(build)}",
        f"Summary: {p['description']}",
        f"Requires-Python: {p['requires-python']}",
        f"License: {p['license']['text']}",
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    return "\n".join(lines)


def write_wheel(build, output):
    p, v = project(), version(build)
    name = p["name"].replace("-", "_")
    info = f"{name}-{v}.dist-info"
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        stage(build, root)
        (root / info).mkdir()
        (root / info / "METADATA").write_text(metadata(build))
        (root / info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: tessera\nRoot-Is-Purelib: false\nTag: {TAG}\n")
        points = p["entry-points"]
        (root / info / "entry_points.txt").write_text(
            "\n".join(
                f"[{group}]\n" + "\n".join(f"{k} = {t}" for k, t in items.items()) + "\n" for group, items in points.items()
            )
        )
        shutil.copy(HERE.parent.parent / "LICENSE", root / info / "LICENSE")
        path = output / f"{name}-{v}-{TAG}.whl"
        pack(root, info, path)
    return path


def pack(root, info, path):
    """Writes the tree as an archive with its RECORD: the same bytes from the same tree."""
    records = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for file in sorted(root.rglob("*")):
            inside = file.relative_to(root).as_posix()
            if not file.is_file() or inside == f"{info}/RECORD":
                continue
            data = file.read_bytes()
            entry = zipfile.ZipInfo(inside, (2024, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if ".so" in file.suffixes else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data, compresslevel=9)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{inside},sha256={digest},{len(data)}")
        records.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(records) + "\n")


def refresh_manifests(path):
    """A manifest names the hash of its library, which auditwheel has given other paths to search."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(root)
        for manifest in (root / "tessera" / "lib" / "tessera" / "plugins").glob("*.toml"):
            digest = hashlib.sha256(manifest.with_suffix(".so").read_bytes()).hexdigest()
            text, count = re.subn(
                r'^hash = "sha256:[0-9a-f]{64}"', f'hash = "sha256:{digest}"', manifest.read_text(), flags=re.M
            )
            if count != 1:
                raise SystemExit(f"{manifest.name} has {count} lines with the hash of its library, expected 1")
            manifest.write_text(text)
        pack(root, next(root.glob("*.dist-info")).name, path)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # PEP 517
    build = os.environ.get("TESSERA_WHEEL_BUILD", str(HERE.parent.parent / "build" / "wheel"))
    if not os.path.exists(os.path.join(build, "CMakeCache.txt")):
        raise SystemExit(f"{build} is no build tree; run ./dev wheel")
    return write_wheel(build, wheel_directory).name


if __name__ == "__main__":
    if sys.argv[1] == "--manifests":
        refresh_manifests(sys.argv[2])
    else:
        print(write_wheel(*sys.argv[1:3]))
