"""The stubs say what the table of stages says, and what the package does."""
# sanitizers: yes

from __future__ import annotations

import ast
import importlib.util
import inspect
import unittest

import support

import brim

PYTHON = support.ROOT / "python"


def made() -> str:
    spec = importlib.util.spec_from_file_location("stubs", PYTHON / "tools" / "stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.stubs())


class Stubs(unittest.TestCase):
    def test_are_those_of_the_table(self) -> None:
        kept = (PYTHON / "brim" / "_stages.pyi").read_text("utf-8")
        self.assertEqual(kept, made(), "run `make stubs`")

    def test_are_valid_and_narrow(self) -> None:
        text = made()
        compile(text, "_stages.pyi", "exec")
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_name_what_there_is(self) -> None:
        tree = ast.parse(made())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        (stages,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        methods = {node.name for node in stages.body if isinstance(node, ast.FunctionDef)}
        self.assertEqual(functions, set(brim._stages.__all__))
        self.assertEqual(methods, {name for name in vars(brim._stages.Stages) if name[0] != "_"})

    def test_parameters_are_those_of_the_calls(self) -> None:
        tree = ast.parse(made())
        (stages,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        for node in tree.body + stages.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            owner = brim.Pipeline if node in stages.body else brim
            call = getattr(owner, node.name)
            said = [a.arg for a in node.args.args + node.args.kwonlyargs]
            said += [node.args.vararg.arg] if node.args.vararg else []
            self.assertEqual(set(said), set(inspect.signature(call).parameters), node.name)

    def test_are_looked_for(self) -> None:
        self.assertTrue((PYTHON / "brim" / "py.typed").exists())


if __name__ == "__main__":
    support.main()
