"""HTML to Markdown: what a reader would see, in linear time, whatever is wrong with the page."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.tools.builtin.html import read


def markdown(source: str) -> str:
    return read(source, "https://example.org/dir/page").text


@pytest.mark.parametrize(
    ("source", "shows"),
    [
        ("a<p>b<p>c<div>d</div>e", "a\n\nb\n\nc\n\nd\n\ne"),
        ("<h2>A <i>b</i></h2>c<hr>d", "## A *b*\n\nc\n\n---\n\nd"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol start=9><li>a<li><p>b</p><p>c</p></ol>", "9. a\n10. b\n\n    c"),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>c", "> a\n>\n> > b\n\nc"),
        ("<pre>  x\n <b>y</b>\n</pre>", "```\n  x\n y\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<p>use <code>f()</code> or <kbd>^C</kbd>", "use `f()` or `^C`"),
        (
            "<a href=b>x</a> <a href='//h.org/c'>y</a> <a href=#z>z</a>",
            "[x](https://example.org/dir/b) [y](https://h.org/c) z",
        ),
        ("<base href=/up/><a href=b>x</a>", "[x](https://example.org/up/b)"),
        (
            "<a href='javascript:alert(1)'>x</a><a href=' data:,y'>y</a><a href='vbscript:z'>z</a>",
            "xyz",
        ),
        ("<a href=/a_(b)>x</a>", "[x](https://example.org/a_%28b%29)"),
        ("<a href=x><h3>Card</h3><p>text</p></a>", "[Card text](https://example.org/dir/x)"),
        ("<img src=i.png alt='a  pic'><img src=j.png>", "![a pic](https://example.org/dir/i.png)"),
        ("<b><p>a</p><p>b</p></b>", "**a**\n\n**b**"),
        ("<b></b><i> </i>x", "* *x"),
        ("<table><tr><td>a|b<td><p>c</p><p>d</p></table>", "| a\\|b | c d |\n| --- | --- |"),
        (
            "<table><tr><td><table><tr><td>a<td>b</table><td>c</table>",
            "| a | b |\n| --- | --- |\n\nc",
        ),
        ("a &lt;b&gt; &amp; &#x41; &nosuch; < c & d", "a <b> & A &nosuch; < c & d"),
        ("<!-- a -->b<!DOCTYPE x>c<?php d ?>e", "bce"),
        ("a<script>b</script >c<STYLE>d</sTyLe>e<script>f", "ace"),
        (
            "<template>a</template><svg><title>b</title><text>c</text></svg><noscript>d</noscript>",
            "d",
        ),
        ("a<b hidden>b<i>c</i></b>d", "ad"),
        ("<div hidden><p>a</div>b<p hidden>c<p>d", "b\n\nd"),
        (
            "<p aria-hidden=TRUE>a</p><p style='color:red; DISPLAY : none'>b<p "
            "style=opacity:0>c<p style=opacity:0.5>d",
            "d",
        ),
        ("<p style='font-size:0px'>a<p style='visibility:hidden'>b<p hidden=until-found>c", "c"),
        ("<textarea>a</textarea><select><option>b</select><button>c</button>", "c"),
        ("x<a", "x"),
        ("x<a b='c", "x"),
        ("x</", "x"),
        ("x<", "x<"),
        ("</div></p>x", "x"),
    ],
)
def test_an_element_becomes_what_a_reader_sees(source: str, shows: str) -> None:
    assert markdown(source) == shows


def test_the_title_is_told_apart() -> None:
    page = read("<head><title> A\n &amp; B </title></head><body><h1>C</h1>", "https://example.org/")
    assert (page.title, page.text) == ("A & B", "# C")


@pytest.mark.parametrize(
    "source",
    [
        *(
            tag * 30_000 + "x"
            for tag in (
                "<b>",
                "<font>",
                "<a href=x>",
                "<blockquote>",
                "<ul><li>",
                "<table><tr><td>",
            )
        ),
        *(
            "<div>" * 100_000 + "x" + "</div>" * 100_000,
            "<p>" * 30_000 + "</q>" * 30_000 + "x",
            "<" * 500_000 + " x",
            "<a " + "/ " * 200_000 + ">x",
        ),
        *(
            "<a " + "=" * 200_000 + ">x",
            "&#" * 200_000 + "x",
            "<x/" * 50_000 + ">x",
            "<p hidden>" * 30_000 + "</p>x",
        ),
    ],
)
def test_deep_and_broken_pages_are_read_to_their_end(source: str) -> None:
    """Each would take minutes, or the whole stack, if it were read twice as long for each level."""
    assert "x" in markdown(source)


def test_a_page_that_grows_too_long_is_cut() -> None:
    page = read("<ul><li>" * 20 + "<p>x</p>" * 10_000, "https://example.org/", cap=5_000)
    assert not page.whole and len(page.text) < 6_000


TAGS = (
    "<p>|</p>|<b>|</b>|<a "
    "href=x>|</a>|<ul>|<ol>|<li>|</ul>|</ol>|<pre>|</pre>|<table>|<tr>|<td>|</td>|</table>|<h1>"
)
SIGNS = (
    "</h1>|<blockquote>|</blockquote>|<div>|</div>|<br>|<hr>|<script>|</script>|<!--|-->|<|>|&|&amp;"
    "|<i hidden>|</i>|x"
)
pieces = st.sampled_from(f"{TAGS}|{SIGNS}".split("|"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=40), st.booleans())
def test_any_source_is_read(parts: list[str], plain: bool) -> None:
    source = "".join(parts)
    page = read(source, "https://example.org/", plain=plain)
    assert page.whole
    assert "\x00" not in page.text and "\x01" not in page.text
