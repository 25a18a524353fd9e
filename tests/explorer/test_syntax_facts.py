"""What syntax says of one file, language by language."""

from __future__ import annotations

import pytest

from retinue.syntax.extraction import file_facts
from retinue.syntax.roles import place_role

DEFINED = [
    (
        "python",
        "class A(b.Base):\n    '''Says so.'''\n    def m(self):\n        def inner(): pass\n"
        "def f(): pass\n",
        ["class A", "method A.m", "function inner", "function f"],
    ),
    (
        "javascript",
        "class A { m() {} }\nfunction f() {}\nconst g = () => 1\napp.use = function use() {}\n"
        "const o = { h() {}, k: function () {} }\n",
        [
            "class A",
            "method A.m",
            "function f",
            "function g",
            "method app.use",
            "method h",
            "method k",
        ],
    ),
    (
        "typescript",
        "export interface I { m(): void }\nexport abstract class A<T> implements I { m() {} }\n"
        "type T = string\nenum E { A }\nnamespace N { export function f() {} }\n",
        [
            "interface I",
            "method I.m",
            "class A",
            "method A.m",
            "type T",
            "enum E",
            "module N",
            "function f",
        ],
    ),
    (
        "go",
        "package a\ntype S struct{}\ntype I interface{}\ntype N int\n"
        "func (s *S) M() {}\nfunc F() {}\n",
        ["struct S", "interface I", "type N", "method S.M", "function F"],
    ),
    (
        "rust",
        "struct S;\nenum E { A }\ntrait T { fn t(&self); }\nimpl<X> T for S<X> { fn t(&self) {} }\n"
        "fn f() {}\nmacro_rules! m { () => {} }\n",
        ["struct S", "enum E", "trait T", "method T.t", "method S.t", "function f", "macro m"],
    ),
    (
        "c",
        "#define M 1\nstruct s { int a; };\ntypedef struct { int a; } t, *tp;\nenum e { A };\n"
        "int declared(void);\nstatic struct s *f(struct s *x) { return x; }\n",
        ["macro M", "struct s", "type t", "type tp", "enum e", "function f"],
    ),
    (
        "cpp",
        "namespace n {\nclass C { public: C() = default; void m() {} int d(); };\n"
        "int C::d() { return 1; }\nusing X = int;\n}\n",
        ["namespace n", "class C", "method C.m", "method C.d", "type X"],
    ),
    (
        "java",
        "class A extends B { A() {} void m() { new R() { public void run() {} }; } }\n"
        "interface I {}\nenum E { X }\n@interface N {}\nrecord R2(int a) {}\n",
        [
            "class A",
            "method A.A",
            "method A.m",
            "method run",
            "interface I",
            "enum E",
            "annotation N",
            "record R2",
        ],
    ),
    (
        "ruby",
        "module M\n  class C < B\n    def m; end\n    def self.s; end\n  end\nend\n",
        ["module M", "class M.C", "method M.C.m", "method M.C.s"],
    ),
    (
        "php",
        "<?php\ninterface I {}\ntrait T {}\nclass C extends B { function m() {} }\n"
        "function f() {}\n",
        ["interface I", "trait T", "class C", "method C.m", "function f"],
    ),
    (
        "c_sharp",
        "namespace N { class C : B { C() {} void M() {} } struct S {} "
        "record R(int A); enum E {X} }\n",
        ["class C", "method C.C", "method C.M", "struct S", "record R", "enum E"],
    ),
    (
        "kotlin",
        "class C : B() {\n  fun m() { g() }\n}\ninterface I { fun q() }\nobject O\n"
        "enum class E { A }\nfun f() = 1\n",
        ["class C", "method C.m", "interface I", "method I.q", "class O", "enum E", "function f"],
    ),
    ("bash", "f() { g; }\nfunction h { :; }\n", ["function f", "function h"]),
]


@pytest.mark.parametrize(("language", "text", "expected"), DEFINED, ids=[d[0] for d in DEFINED])
def test_definitions_have_their_kind_and_the_type_they_are_in(language, text, expected):
    facts = file_facts(language, text.encode())
    assert [f"{d.kind} {d.title}" for d in facts.definitions] == expected
    assert facts.errors == 0


CALLED = [
    ("python", "def f():\n    a.b.g(1)\n", "g"),
    ("javascript", "function f() { new x.G(); }\n", "G"),
    ("go", "package a\nfunc f() { x.G() }\n", "G"),
    ("rust", "fn f() { A::g(); }\n", "g"),
    ("c", "int f(void) { return s->g(1); }\n", "g"),
    ("cpp", "int f() { return std::max(1, 2); }\n", "max"),
    ("java", "class A { void f() { new G<String>(); } }\n", "G"),
    ("ruby", "def f\n  x.g(1)\nend\n", "g"),
    ("php", "<?php\nfunction f() { A::g(); }\n", "g"),
    ("c_sharp", "class A { void f() { x.G<int>(); } }\n", "G"),
    ("kotlin", "fun f() { x.g() }\n", "g"),
    ("bash", "f() { g x; }\n", "g"),
]


@pytest.mark.parametrize(("language", "text", "name"), CALLED, ids=[c[0] for c in CALLED])
def test_a_call_has_its_name_and_the_function_around_it(language, text, name):
    facts = file_facts(language, text.encode())
    (call,) = (c for c in facts.calls if c.name == name)
    around = facts.around(call)
    assert around is not None and around.name == "f"


def test_two_functions_on_one_line_keep_their_own_calls():
    facts = file_facts("javascript", b"function a() { x() } function b() { x() }\nx()\n")
    around = [facts.around(c) for c in facts.calls]
    assert [d.name if d else "" for d in around] == ["a", "b", ""]


IMPORTED = [
    ("python", "from .a import b as c, d\nimport x.y, z as q\nfrom m import *\n", [
        (".a", ("b", "d")), ("x.y", ()), ("z", ()), ("m", ("*",))]),
    ("typescript", "import d, { a as b } from './x.js'\nexport * from './y'\nimport('./z')\n", [
        ("./x.js", ("default", "a")), ("./y", ("*",)), ("./z", ())]),
    ("rust", "use crate::a::{b, c::D as E};\nmod m;\n", [
        ("crate::a", ("b",)), ("crate::a::c", ("D",)), ("mod m", ())]),
    ("java", "import static a.B.c;\nimport a.*;\n", [("a.B", ("c",)), ("a", ("*",))]),
    ("php", "<?php\nuse A\\{B, C\\D as E};\n", [("A", ("B",)), ("A\\C", ("D",))]),
    ("c", '#include "a.h"\n#include <b.h>\n', [('"a.h"', ()), ("<b.h>", ())]),
    ("ruby", "require 'a/b'\nrequire_relative 'c'\n", [("a/b", ()), ("./c", ())]),
    ("bash", ". ./lib.sh\n", [("./lib.sh", ())]),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "expected"), IMPORTED, ids=[i[0] for i in IMPORTED])
def test_an_import_has_its_module_and_the_names_taken_from_it(language, text, expected):
    facts = file_facts(language, text.encode())
    assert [(i.module, i.names) for i in facts.imports] == expected


def test_comments_strings_and_prose_define_and_call_nothing():
    text = b'"""def a(): b()\n\nclass C: pass"""\n# def d(): e()\nx = "def f(): g()"\n'
    facts = file_facts("python", text)
    assert facts.definitions == () and facts.calls == ()


def test_a_licence_is_no_description():
    text = b"/* Copyright 2020 A. All rights reserved. */\n\n/* Keeps the time. */\n\nint x;\n"
    facts = file_facts("c", text)
    assert (facts.doc, facts.doc_line) == ("Keeps the time.", 3)
    assert file_facts("c", text.replace(b"Keeps the time.", b"SPDX: MIT.")).doc == ""


def test_a_heading_is_passed_over_and_the_place_is_that_of_the_sentence():
    facts = file_facts("python", b'"""\nTitle\n~~~~~\n\nSays what it is.\n"""\n')
    assert (facts.doc, facts.doc_line) == ("Says what it is.", 5)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("ruby", "# frozen_string_literal: true\n\nrequire 'a'\n", ("", 0)),
        (
            "ruby",
            "# frozen_string_literal: true\n# Keeps the time.\n\nx = 1\n",
            ("Keeps the time.", 2),
        ),
        ("bash", "# shellcheck shell=bash disable=SC1 x\n\nf() { :; }\n", ("", 0)),
        ("php", "<?php\n\n/**\n * @author A B <a@b.example>\n */\n\nf();\n", ("", 0)),
        (
            "c",
            "/*\n * @file x.c of all\n *\n * @brief Keeps the time.\n */\n\nint x;\n",
            ("Keeps the time.", 4),
        ),
        ("c", "/* Please send bug reports to A B. */\n\nint x;\n", ("", 0)),
    ],
)
def test_what_is_written_for_programs_is_no_description(language, text, expected):
    facts = file_facts(language, text.encode())
    assert (facts.doc, facts.doc_line) == expected


def test_a_tag_is_no_description_of_a_type():
    text = b"/**\n * Runs it\n * and ends.\n * @param x the\n *     thing\n */\nclass A { }\n"
    (one,) = file_facts("java", text).definitions
    assert one.doc == "Runs it and ends."


def test_an_attribute_of_a_macro_does_not_hide_the_function_behind_it():
    from retinue.syntax.c_preparation import attribute_macros, prepared

    text = b"#define printflike(a, b) __attribute__((format(printf, a, b)))\n"
    text += b"int printflike(1, 2)\nlog_it(const char *f)\n{ return 1; }\n"
    macros = attribute_macros([text])
    facts = file_facts("c", prepared(text, macros))
    assert [(d.name, d.line) for d in facts.definitions][-1] == ("log_it", 3)
    assert len(prepared(text, macros)) == len(text)


def test_a_dead_branch_defines_nothing_and_one_that_breaks_the_syntax_is_put_aside():
    from retinue.syntax.c_preparation import prepared

    dead = b"#if 0\nint gone(void) { return 1; }\n#endif\nint there(void) { return 1; }\n"
    assert [d.name for d in file_facts("c", prepared(dead, {})).definitions] == ["there"]
    split = b"int f(void)\n{\n#ifdef A\n  if (a) {\n#else\n  if (b) {\n#endif\n    g();\n  }\n}\n"
    split += b"int after(void) { return 1; }\n"
    facts = file_facts("c", split)
    assert [d.name for d in facts.definitions] == ["f", "after"] and facts.errors == 0


def test_what_the_grammar_cannot_read_is_counted_with_its_line():
    facts = file_facts("python", b"def good(): pass\n\ndef bad(:\n  ???\n")
    assert facts.errors > 0 and facts.error_line >= 3
    assert "good" in [d.name for d in facts.definitions]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "def broken(:\n  x\n"),
        ("javascript", "function f( { return 1 }\n"),
        ("go", "package a\nfunc f( {\n}\n"),
        ("rust", "fn f( {}\n"),
    ],
)
def test_a_token_that_is_missing_is_an_error_too(language: str, text: str) -> None:
    assert file_facts(language, text.encode()).errors > 0


def test_what_the_grammars_of_c_and_bash_guess_is_no_error() -> None:
    macro = b"void f(void) {\n  TAILQ_FOREACH(a, b, c)\n    g(a);\n}\n"
    assert file_facts("c", macro).errors == 0
    assert file_facts("bash", b'f() {\n  L="${L:0:$P}$s${L:$P}"\n}\n').errors == 0


@pytest.mark.parametrize("path", ["db/c_test.c", "db/db_test.cc", "src/jq_tests.c"])
def test_a_file_of_c_is_a_test_by_its_name(path: str) -> None:
    assert (place_role(path), place_role(path.replace("_test", "_best"))) == ("test", "source")
