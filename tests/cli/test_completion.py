"""Tests of `brim completion`: each shell completes commands, options and pipelines.

Needs python3's standard library and BRIM_CLI, the path of the program. A shell that is not there
is skipped. bash and fish are asked what they would offer; zsh, which tells nobody, gets the keys on
a terminal of its own.
"""

import json
import os
import re
import select
import shutil
import subprocess
import time
import unittest

from support import CLI, LIMIT, Case, brim, main, open_terminal

FOLLOW = {"shuffle", "take", "batch", "cast"}  # some stages that can follow
BEGIN = {"npy", "range", "zip", "mix"}  # some that can begin


class Scripts(unittest.TestCase):
    def test_every_stage_and_every_option_is_in_each(self):
        stages = json.loads(brim("stages", "--json").stdout)["stages"]
        for shell in ("bash", "zsh", "fish"):
            done = brim("completion", shell)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            script = done.stdout.decode()
            for stage in stages:
                self.assertRegex(script, r"\b%s\b" % stage["name"])
                for argument in stage["arguments"]:
                    if argument["type"] not in ("pipeline", "weighted pipeline"):
                        self.assertIn(argument["name"] + "=", script)
                    for choice in argument.get("choices", []):
                        self.assertIn(choice, script)
            for option in ("memory", "state-every", "npy", "verify"):
                self.assertIn(option, script)

    def test_other_shells_are_refused(self):
        done = brim("completion", "tcsh")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"bash, zsh and fish", done.stderr)
        self.assertEqual(brim("completion").returncode, 2)


class Shell(Case):
    """A folder with a script, the program on the PATH, and a file to name."""

    shell = ""

    def setUp(self):
        super().setUp()
        if shutil.which(self.shell) is None:
            self.skipTest("there is no %s" % self.shell)
        (self.folder / "bin").mkdir()
        os.symlink(os.path.realpath(CLI), self.folder / "bin" / "brim")
        self.environment = dict(os.environ, HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder),
                                PATH="%s:%s" % (self.folder / "bin", os.environ["PATH"]))
        (self.folder / "script").write_bytes(brim("completion", self.shell).stdout)
        (self.folder / "data").mkdir()
        (self.folder / "data" / "train.npy").write_text("")

    def run_shell(self, *words):
        done = subprocess.run([self.shell, *words], env=self.environment, cwd=self.folder / "data",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        return done.stdout.decode().splitlines()


class Asked:
    """What holds for shells that tell what they offer: offers(words of the line) gives a set."""

    def test_commands(self):
        self.assertLessEqual({"plan", "run", "cat", "inspect", "completion"}, self.offers(""))
        self.assertEqual(self.offers("insp"), {"inspect"})
        self.assertEqual(self.offers("help", "ben"), {"bench"})
        self.assertEqual(self.offers("completion", ""), {"bash", "zsh", "fish"})
        self.assertEqual(self.offers("cache", ""), {"list", "info", "verify", "rm", "prune"})

    def test_options_of_the_command(self):
        told = self.offers("run", "--")
        self.assertLessEqual({"--memory", "--state-every", "--digest"}, told)
        self.assertNotIn("--repeat", told)
        self.assertEqual(self.offers("bench", "--rep"), {"--repeat"})

    def test_names_of_stages(self):
        self.assertEqual(self.offers("stages", "shuf"), {"shuffle"})
        self.assertLessEqual(BEGIN | FOLLOW, self.offers("stages", ""))

    def test_files(self):
        self.assertEqual(self.offers("inspect", "tr"), {"train.npy"})
        self.assertEqual(self.offers("cache", "info", "tr"), {"train.npy"})
        self.assertEqual(self.offers("run", "'range 5'", "--state", "tr"), {"train.npy"})

    def test_a_pipeline_begins_with_a_source(self):
        told = self.offers("run", "'")
        self.assertLessEqual(BEGIN, told)
        self.assertFalse(FOLLOW & told)

    def test_behind_a_bar_stands_another_stage(self):
        told = self.offers("run", "'range 10 | ")
        self.assertLessEqual({"range 10 | " + name for name in FOLLOW}, told)
        self.assertNotIn("range 10 | npy", told)
        told = self.offers("plan", "\"range 10 |")
        self.assertIn("range 10 |shuffle", told)

    def test_in_parentheses_a_pipeline_begins(self):
        told = self.offers("cat", "'mix 0.5 (npy a) 0.5 (")
        self.assertLessEqual({"mix 0.5 (npy a) 0.5 (" + name for name in BEGIN}, told)
        self.assertNotIn("mix 0.5 (npy a) 0.5 (shuffle", told)

    def test_arguments_of_a_stage(self):
        told = self.offers("run", "'range 10 | shuffle ")
        self.assertLessEqual({"range 10 | shuffle seed=", "range 10 | shuffle block="}, told)
        self.assertIn("range 10 | batch 5 remainder=", self.offers("run",
                                                                    "'range 10 | batch 5 rem"))

    def test_choices(self):
        before = "range 10 | batch 5 remainder="
        self.assertEqual(self.offers("run", "'" + before),
                         {before + "keep", before + "drop", before + "pad"})
        self.assertIn("range 9 | normalize imagenet", self.offers("run", "'range 9 | normalize im"))
        self.assertIn("npy x map=yes", self.offers("run", "'npy x map="))

    def test_files_in_a_pipeline(self):
        self.assertIn("npy train.npy", self.offers("run", "'npy tr"))
        self.assertIn("npy train.npy name=", self.offers("run", "'npy train.npy na"))


class Bash(Asked, Shell):
    shell = "bash"

    def offers(self, *words):
        script = ("source ../script; COMP_WORDS=(brim \"$@\"); COMP_CWORD=$#; COMPREPLY=(); _brim; "
                  "((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"; true")
        return set(self.run_shell("--norc", "-c", script, "bash", *words))

    def test_a_stage_alone_is_offered_with_what_follows(self):
        # readline closes the quote behind a single offer
        self.assertLessEqual({"range 10 | shuffle seed=", "range 10 | shuffle |"},
                             self.offers("run", "'range 10 | shuf"))
        for word in ("'ran", "'range 10 | shuf", "'range 10 | batch 5 rem", "'npy tr"):
            self.assertGreater(len(self.offers("run", word)), 1, word)

    def test_a_pipeline_without_its_quote_gets_one(self):
        told = self.offers("run", "ran")
        self.assertTrue(told and all(one.startswith("'range ") for one in told), told)

    def test_it_is_bound_to_brim(self):
        self.assertEqual(self.run_shell("--norc", "-c", "source ../script; complete -p brim"),
                         ["complete -F _brim brim"])


class Fish(Asked, Shell):
    shell = "fish"

    def offers(self, *words):
        line = " ".join(("brim",) + words)
        told = self.run_shell("--no-config", "-c", "source ../script; complete -C $argv[1]", line)
        return {one.split("\t")[0] for one in told}

    def test_a_stage(self):
        self.assertEqual(self.offers("run", "'range 10 | shuf"), {"range 10 | shuffle"})


class Zsh(Shell):
    shell = "zsh"

    def typed(self, *lines):
        """What stands in the line after each of `lines`, which end with a tab."""
        master, terminal = open_terminal(self)
        environment = dict(self.environment, TERM="dumb")
        process = subprocess.Popen(
            ["zsh", "-f", "-i"], env=environment, cwd=self.folder / "data", stdin=terminal,
            stdout=terminal, stderr=terminal, start_new_session=True)
        os.close(terminal)
        try:
            # a widget prints the line: what is on the screen is drawn in pieces
            self.read_until(master, b"ready1\r",
                            b"PS1=; unsetopt prompt_cr prompt_sp; autoload -U compinit;"
                            b" compinit -u -D; source ../script;"
                            b" shown() { print -r -- \"<<$BUFFER>>\"; BUFFER= }; zle -N shown;"
                            b" bindkey '^X' shown; echo ready$((1))\n")
            return [self.line_after(master, line) for line in lines]
        finally:
            process.kill()
            process.wait()
            os.close(master)

    def read_until(self, master, mark, keys):
        os.write(master, keys)
        shown = b""
        deadline = time.monotonic() + LIMIT
        while mark not in shown and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 4096)
        self.assertIn(mark, shown)
        return shown

    def line_after(self, master, line):
        shown = self.read_until(master, b">>", line.encode() + b"\t\x18")
        return re.search(rb"<<(.*)>>", shown, re.S)[1].decode()

    def test_what_is_one_offer_is_put_in(self):
        lines = {
            "brim insp": "brim inspect ",
            "brim run --state-e": "brim run --state-every ",
            "brim stages shuf": "brim stages shuffle ",
            "brim run 'range 10 | shuf": "brim run 'range 10 | shuffle ",
            "brim run \"mix 0.5 (tok": "brim run \"mix 0.5 (tokens ",
            "brim run 'range 10 | batch 5 rem": "brim run 'range 10 | batch 5 remainder=",
            "brim run 'range 10 | batch 5 remainder=dr":
                "brim run 'range 10 | batch 5 remainder=drop ",
            "brim run rang": "brim run 'range ",
            "brim inspect tr": "brim inspect train.npy ",
            "brim cache ver": "brim cache verify ",
            "brim cache rm tr": "brim cache rm train.npy ",
        }
        told = dict(zip(lines, self.typed(*lines)))
        self.assertEqual(told, lines)


if __name__ == "__main__":
    main()
