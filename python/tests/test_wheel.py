"""Tests of the wheel: what is in it, and that it runs in clean environments of every Python found.

The wheel is that of build/wheel, built by tools/wheel if a source is newer. No network is used:
the tools for building are those of build/wheel-venv (tools/wheel --tools), without which all is
skipped. The environments have no compiler in their path and no package but brim.
"""

# label: full

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import support

VERSIONS = [(3, minor) for minor in range(10, 16)]
LIMIT = 240  # seconds that one command may take

# What every Linux has that a wheel may be made for; all else must be inside.
SYSTEM = re.compile(
    r"(linux-vdso|ld-linux-[a-z0-9-]+|libc|libm|libpthread|libdl|librt|libz|libgcc_s)\.so(\.\d+)?"
)

# Centers of the drawn images, read back as they were drawn; says where brim came from.
PROGRAM = """
import json, sys
import brim
data = brim.folder(sys.argv[1]).decode().center_crop(24).batch(4)
images, labels = [], []
with brim.Runtime(memory="64MiB") as runtime, runtime.open(data) as loader:
    for batch in loader:
        images += batch["image"].tolist()[: batch.valid_rows]
        labels += batch["label"].tolist()[: batch.valid_rows]
print(json.dumps([brim.__version__, brim.__file__, images, labels]))
"""


def clean(path: pathlib.Path | str) -> dict[str, str]:
    """An environment with nothing of this one but what a user's shell has too."""
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, "PATH": str(path), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}


def run(*words: object, env: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env=env,
        cwd="/",  # where no brim lies, which Python would take first
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{said}"
    return said


def interpreters() -> dict[tuple[int, int], str]:
    """A Python of each version that can make environments: in the path, or pyenv's."""
    probe = "import sys, venv, ensurepip; print(*sys.version_info[:2], sys.executable)"
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    found = {}
    for major, minor in VERSIONS:
        name = f"python{major}.{minor}"
        folders = [*os.get_exec_path(), *map(str, pyenv.glob(f"versions/{major}.{minor}.*/bin"))]
        for folder in folders:
            python = shutil.which(name, path=folder)
            if python is None:
                continue
            done = subprocess.run(
                [python, "-c", probe], capture_output=True, text=True, env=clean(os.defpath)
            )
            said = done.stdout.split()
            if said[:2] == [str(major), str(minor)]:
                found[major, minor] = said[2]  # not a script that looks for it
                break
    return found


def center(image: support.Drawn, length: int) -> list[list[list[int]]]:
    """The rows of the square in the middle, halves to even."""
    top, left = round((image.height - length) / 2), round((image.width - length) / 2)
    return [
        [
            list(image.pixels[(y * image.width + x) * 3 :][:3])
            for x in range(left, left + length)
        ]
        for y in range(top, top + length)
    ]


class Wheel(support.Case):
    wheel: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        if not (support.ROOT / "build/wheel-venv/tools.txt").exists():
            raise unittest.SkipTest("there is no build/wheel-venv (tools/wheel --tools makes it)")
        path = clean(os.environ["PATH"])
        if "CC" in os.environ:
            path["CC"] = os.environ["CC"]
        run(support.ROOT / "tools/wheel", env=path)
        (cls.wheel,) = (support.ROOT / "build/wheel").glob("*.whl")

    def test_name_and_files(self) -> None:
        """One wheel for 3.10 and later, with every module and nothing that is not needed."""
        self.assertRegex(
            self.wheel.name, r"^brim-\d+\.\d+\.\d+-cp310-abi3-manylinux_\d+_\d+_(x86_64|aarch64)"
        )
        with zipfile.ZipFile(self.wheel) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
        package = {name for name in names if name.startswith("brim/")}
        sources = (support.ROOT / "python/brim").glob("*.*")
        expected = {f"brim/{path.name}" for path in sources if path.is_file()}
        self.assertEqual(package, expected | {"brim/_core.abi3.so"})
        places = {name.split("/")[0] for name in names}
        allowed = r"brim|brim\.libs|brim\.scripts|brim-[\d.]+\.(dist-info|data)"
        self.assertEqual([place for place in places if not re.fullmatch(allowed, place)], [])

    def test_clean_environments(self) -> None:
        """Installed without a compiler and without other packages, brim reads images."""
        drawn = support.drawn_set(self.folder / "images", 10)
        empty = self.folder / "empty"
        empty.mkdir()
        found = interpreters()
        if not found:
            self.skipTest("no Python here can make environments")
        print("versions:", *(f"{major}.{minor}" for major, minor in found), file=sys.stderr)
        for version, python in found.items():
            with self.subTest(version=version), tempfile.TemporaryDirectory() as place:
                folder = pathlib.Path(place).resolve() / "venv"
                run(python, "-m", "venv", folder, env=clean(empty))
                own = folder / "bin/python"
                run(own, "-m", "pip", "install", "--no-index", self.wheel, env=clean(empty))
                said = run(own, "-c", PROGRAM, self.folder / "images", env=clean(empty))
                number, file, images, labels = json.loads(said)
                self.assertIn(f"brim-{number}-", self.wheel.name)
                self.assertTrue(pathlib.Path(file).is_relative_to(folder), file)
                self.assertEqual(labels, [image.label for image in drawn])
                self.assertEqual(len(images), len(drawn))
                for image, rows in zip(drawn, images):
                    self.assertTrue(rows == center(image, 24), image.path)
                said = run(folder / "bin/brim", "--version", env=clean(empty))
                self.assertIn(number, said)
                self.check_libraries(folder)

    def check_libraries(self, folder: pathlib.Path) -> None:
        """Whatever brim's files load lies beside them, but for what every Linux has."""
        ldd = shutil.which("ldd")
        if ldd is None:
            self.skipTest("there is no ldd")
        (packages,) = folder.glob("lib/python3*/site-packages")
        files = [*packages.glob("brim/*.so"), *packages.glob("brim.libs/*")]
        files += packages.glob("brim.scripts/*")
        self.assertTrue(files)
        for file in files:
            for line in run(ldd, file, env=clean(os.environ["PATH"])).splitlines():
                name, _, rest = line.strip().partition(" => ")
                name = pathlib.PurePath(name.split(" (")[0]).name
                if SYSTEM.fullmatch(name):
                    continue
                target = pathlib.Path(rest.split(" (")[0]).resolve()
                self.assertTrue(target.is_relative_to(packages.resolve()), f"{file}: {line}")


if __name__ == "__main__":
    support.main()
