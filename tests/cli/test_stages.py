"""docs/stages.md is what `brim stages --markdown` prints, and that has all that the table has.

Needs python3's standard library and BRIM_CLI, the path of the program.
"""

import json
import unittest

from support import ROOT, brim, main


class Page(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        done = brim("stages", "--markdown")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.page = done.stdout.decode()

    def test_the_page_is_up_to_date(self):
        written = (ROOT / "docs" / "stages.md").read_text()
        self.assertEqual(written, self.page, "make stages writes docs/stages.md anew")

    def test_everything_is_on_it(self):
        table = json.loads(brim("stages", "--json").stdout)["stages"]
        lines = self.page.splitlines()
        headings = [line[4:] for line in lines if line.startswith("### ")]
        self.assertEqual(sorted(headings), sorted(stage["name"] for stage in table))
        for stage in table:
            begin = lines.index("### " + stage["name"])
            self.assertIn("    " + stage["example"], lines[begin:begin + 8])
            rows = [line for line in lines if line.startswith(("| `[", "| `"))]
            for argument in stage["arguments"]:
                self.assertTrue(any("%s=" % argument["name"] in row.split(" | ")[0]
                                    for row in rows), argument)

    def test_every_row_has_its_columns(self):
        for line in self.page.splitlines():
            if line.startswith("|"):
                self.assertEqual(line.replace("\\|", "").count("|"), 5, line)

    def test_a_part_of_a_name(self):
        for word, names in (("rand", ["random_crop", "random_resized_crop", "random_erasing"]),
                            ("_jit", ["color_jitter"])):
            done = brim("stages", word)
            self.assertEqual(done.returncode, 2)
            for name in names:
                self.assertIn(name, done.stderr.decode())
            self.assertNotIn("range", done.stderr.decode())
        self.assertEqual(brim("stages", "crop").returncode, 0)  # a stage, and a part of others
        self.assertIn(b"did you mean shuffle?", brim("stages", "shufle").stderr)
        self.assertIn(b"brim stages lists them all", brim("stages", "z").stderr)

    def test_usage(self):
        for words in (["--json"], ["shuffle"]):
            self.assertEqual(brim("stages", "--markdown", *words).returncode, 2)


if __name__ == "__main__":
    main()
