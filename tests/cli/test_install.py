"""Tests of what is installed: places, a project outside that builds against it, the manual page,
the Debian package.

Needs python3's standard library and BRIM_CLI, the path of the program in a build of everything;
what else is missing (cmake, pkg-config, a compiler, man, dpkg-deb) is skipped. Nothing outside of a
scratch folder is written, but for the list of installed files that CMake leaves in its build.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import CLI, LIMIT, ROOT, SANITIZED, brim, main

BUILD = pathlib.Path(CLI).resolve().parent
SUM = re.compile(r"^brim (\d+\.\d+\.\d+), library \1, sum 499500$")


def cached(name):
    """A variable of the build, "" if it has none."""
    try:
        cache = (BUILD / "CMakeCache.txt").read_text()
    except OSError:
        return ""
    found = re.search(r"^%s:\w+=(.*)$" % re.escape(name), cache, re.M)
    return found[1] if found else ""


def clean_environment(**more):
    """As a user has it: nothing says where libraries are."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LD_", "CMAKE_", "PKG_CONFIG")) and
                   key not in ("DESTDIR", "CFLAGS", "MAKEFLAGS", "MAKELEVEL")}
    environment.update(more)
    return environment


def run(words, good=(0,), cwd=None, **more):
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=clean_environment(**more),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT)
    said = done.stdout.decode(errors="replace")
    assert done.returncode in good, "%s\n%s" % (" ".join(map(str, words)), said)
    return said


@unittest.skipIf(SANITIZED, "a build with a sanitizer is not for installing")
@unittest.skipIf(not cached("CMAKE_COMMAND"), "there is no build by CMake beside the program")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.scratch = pathlib.Path(holder.name)
        cls.prefix = cls.scratch / "prefix with a blank"
        run([cached("CMAKE_COMMAND"), "--install", BUILD, "--prefix", cls.prefix])
        cls.version = brim("version").stdout.decode().split()[1]

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest("there is no %s" % program)

    def project(self, name):
        """A copy of examples/outside in a folder of its own."""
        folder = self.scratch / name
        shutil.copytree(ROOT / "examples" / "outside", folder)
        return folder

    def libraries_of(self, program):
        self.need("readelf")
        return re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-d", program]))


class Files(Installed):
    def test_everything_is_in_its_place(self):
        there = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                 if not path.is_dir()}
        short = ".".join(self.version.split(".")[:2])
        self.assertEqual(there, {
            "bin/brim", "include/brim.h", "lib/libbrim.a", "lib/libbrim.so",
            "lib/libbrim.so." + short, "lib/libbrim.so." + self.version, "lib/pkgconfig/brim.pc",
            "lib/cmake/brim/brimConfig.cmake", "lib/cmake/brim/brimConfigVersion.cmake",
            "lib/cmake/brim/brimTargets.cmake",
            "lib/cmake/brim/brimTargets-%s.cmake" % cached("CMAKE_BUILD_TYPE").lower(),
            "share/man/man1/brim.1", "share/doc/brim/copyright",
            "share/bash-completion/completions/brim", "share/zsh/site-functions/_brim",
            "share/fish/vendor_completions.d/brim.fish"})

    def test_the_library_has_a_name_with_its_version(self):
        self.need("readelf")
        found = re.search(r"SONAME.*\[(.*)\]", run(["readelf", "-d",
                                                    self.prefix / "lib" / "libbrim.so"]))
        self.assertEqual(found[1], "libbrim.so." + ".".join(self.version.split(".")[:2]))
        self.assertEqual(os.readlink(self.prefix / "lib" / "libbrim.so"), found[1])

    def test_no_text_holds_where_it_was_built_or_installed(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.suffix in (".cmake", ".pc", ".fish", ".h"):
                text = path.read_text()
                for place in (str(self.prefix), str(BUILD), str(ROOT)):
                    # a checkout at /brim is not meant by ~/.cache/brim
                    self.assertNotRegex(text, r"(?<![\w.~/-])" + re.escape(place), path)

    def test_the_program_runs_by_itself(self):
        program = self.prefix / "bin" / "brim"
        self.assertEqual(run([program, "version"]), "brim %s\n" % self.version)
        self.assertIn("1,000 in 16 batches", run([program, "run", "range 1000 | batch 64"]))
        self.assertNotIn("libbrim", " ".join(self.libraries_of(program)))

    def test_the_completions_are_those_of_the_program(self):
        for shell, place in (("bash", "bash-completion/completions/brim"),
                             ("zsh", "zsh/site-functions/_brim"),
                             ("fish", "fish/vendor_completions.d/brim.fish")):
            self.assertEqual((self.prefix / "share" / place).read_bytes(),
                             brim("completion", shell).stdout)

    def test_destdir_stands_before_the_prefix(self):
        stage = self.scratch / "stage"
        run([cached("CMAKE_COMMAND"), "--install", BUILD, "--prefix", "/opt/brim"],
            DESTDIR=str(stage))
        self.assertEqual(os.listdir(stage), ["opt"])
        self.assertTrue((stage / "opt" / "brim" / "bin" / "brim").exists())
        self.assertTrue((stage / "opt" / "brim" / "share" / "zsh" / "site-functions").exists())
        self.need("make")
        said = run(["make", "-n", "install", "PREFIX=/opt/brim", "DESTDIR=%s" % stage], cwd=ROOT)
        self.assertIn("DESTDIR=\"%s\" cmake --install build/release --prefix \"/opt/brim\"" % stage,
                      said)


class Outside(Installed):
    def test_with_cmake(self):
        folder = self.project("with cmake")
        prefix = self.prefix
        # a prefix that was moved after installing works as well
        moved = self.scratch / "moved"
        shutil.copytree(prefix, moved, symlinks=True)
        compiler = cached("CMAKE_C_COMPILER")
        cmake = cached("CMAKE_COMMAND")
        for number, place in enumerate((prefix, moved)):
            build = folder / ("build%d" % number)
            run([cmake, "-S", folder, "-B", build, "-DCMAKE_PREFIX_PATH=%s" % place,
                 "-DCMAKE_C_COMPILER=%s" % compiler])
            run([cmake, "--build", build])
            for name in ("outside", "outside_static"):
                self.assertRegex(run([build / name]), SUM)
            self.assertIn("libbrim.so", " ".join(self.libraries_of(build / "outside")))
            self.assertNotIn("libbrim", " ".join(self.libraries_of(build / "outside_static")))

    def test_another_version_is_not_found(self):
        folder = self.project("other")
        lists = folder / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("find_package(brim 0.1 ",
                                                   "find_package(brim 9.1 "))
        said = run([cached("CMAKE_COMMAND"), "-S", folder, "-B", folder / "build",
                    "-DCMAKE_PREFIX_PATH=%s" % self.prefix,
                    "-DCMAKE_C_COMPILER=%s" % cached("CMAKE_C_COMPILER")], good=(1,))
        self.assertIn(self.version, said)

    def test_with_pkg_config(self):
        self.need("make", "pkg-config", "realpath")
        folder = self.project("with-pkg-config")
        # pkg-config escapes blanks for a shell, which make's recipes do not undo
        prefix = self.scratch / "plain"
        shutil.copytree(self.prefix, prefix, symlinks=True)
        run(["make", "-C", folder, "CC=%s" % cached("CMAKE_C_COMPILER"),
             "PKG_CONFIG_PATH=%s" % (prefix / "lib" / "pkgconfig")])
        for name in ("outside", "outside_static"):
            self.assertRegex(run([folder / name]), SUM)
        self.assertIn("libbrim.so", " ".join(self.libraries_of(folder / "outside")))
        self.assertNotIn("libbrim", " ".join(self.libraries_of(folder / "outside_static")))

    def test_the_header_alone(self):
        """It compiles as C and, if there is a compiler, as C++, strictly."""
        source = self.scratch / "header.c"
        source.write_text("#include <brim.h>\nint main(void) { return brim_version()[0] == 0; }\n")
        languages = [(cached("CMAKE_C_COMPILER"), ["-x", "c", "-std=c11"])]
        if shutil.which("c++"):
            languages.append(("c++", ["-x", "c++", "-std=c++11"]))
        for compiler, options in languages:
            run([compiler, *options, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                 "-I", self.prefix / "include", source])


class Manual(Installed):
    def rendered(self, page):
        if shutil.which("man"):
            return run(["man", "-l", page], LC_ALL="C", MANWIDTH="100", MANPAGER="cat",
                       MAN_KEEP_FORMATTING="", TERM="dumb")
        if shutil.which("groff"):
            return re.sub(".\b", "", run(["groff", "-man", "-Tascii", "-P-c", page]))
        if shutil.which("mandoc"):
            return re.sub(".\b", "", run(["mandoc", "-Tascii", page]))
        self.skipTest("there is no man, groff or mandoc")

    def test_it_renders_without_complaints(self):
        page = self.prefix / "share" / "man" / "man1" / "brim.1"
        if shutil.which("groff"):
            said = run(["groff", "-man", "-ww", "-Tascii", "-z", page])
            # a page without a date is what we want
            self.assertEqual(said.strip(), "")
        self.assertRegex(self.rendered(page), r"(?m)^EXIT STATUS")

    def test_every_command_and_option_is_in_it(self):
        text = re.sub(r"\s+", " ", self.rendered(self.prefix / "share" / "man" / "man1" / "brim.1"))
        helped = brim("help").stdout.decode()
        for command in re.findall(r"^  (\w+) ", helped, re.M):
            self.assertIn("brim " + command, text)
            own = brim("help", command).stdout.decode()
            for option in re.findall(r"^  (--[\w-]+)", own, re.M):
                self.assertIn(option + " ", text + " ", "of " + command)
        self.assertIn("brim " + self.version, text)


class Debian(Installed):
    def test_the_package(self):
        self.need("dpkg-deb", "dpkg-shlibdeps", "file")
        cpack = pathlib.Path(cached("CMAKE_COMMAND")).with_name("cpack")
        cpack = cpack if cpack.exists() else shutil.which("cpack")
        if not cpack:
            self.skipTest("there is no cpack")
        place = self.scratch / "package"
        run([cpack, "-G", "DEB", "-B", place, "--config", BUILD / "CPackConfig.cmake"], cwd=BUILD)
        (package,) = place.glob("*.deb")
        self.assertRegex(package.name, r"^brim_%s_\w+\.deb$" % re.escape(self.version))
        control = run(["dpkg-deb", "-f", package])
        self.assertIn("Package: brim\n", control)
        self.assertIn("Version: %s\n" % self.version, control)
        self.assertIn("Section: science\n", control)
        self.assertRegex(control, r"Description: feeds training .*\n .*batches")
        depends = re.search(r"^Depends: (.*)$", control, re.M)[1]
        for library in ("libc6", "libxxhash0", "zlib1g", "libyajl2", "libjansson4"):
            self.assertIn(library, depends)

        root = self.scratch / "root"
        run(["dpkg-deb", "-x", package, root])
        self.assertEqual(os.listdir(root), ["usr"])
        there = {str(path.relative_to(root / "usr")) for path in root.rglob("*")}
        self.assertLessEqual(
            {"bin/brim", "include/brim.h", "lib/libbrim.a", "lib/libbrim.so." + self.version,
             "lib/pkgconfig/brim.pc", "lib/cmake/brim/brimConfig.cmake", "share/man/man1/brim.1",
             "share/doc/brim/copyright", "share/bash-completion/completions/brim",
             "share/zsh/vendor-completions/_brim", "share/fish/vendor_completions.d/brim.fish"},
            there)
        self.assertEqual(run([root / "usr" / "bin" / "brim", "version"]),
                         "brim %s\n" % self.version)
        self.assertFalse([name for name in there if "example" in name or "test" in name])


if __name__ == "__main__":
    main()
