"""Walking the tree, and what two trees have in common."""

from __future__ import annotations

from tests.unit.language.sketch import expression, module

from bartack.language import parse, tree

PROGRAM = """# Says hello.
worker hello(name: string = "you") {
    $ echo "hi $name" > out.txt  # shown
    return think { Hello ${name}, do { print(1) } }
}
"""


def test_a_walk_meets_every_node_with_parents_first() -> None:
    met = list(tree.walk(module(PROGRAM)))
    kinds = [type(node) for node in met]

    assert kinds[0] is tree.Module
    assert {tree.Declaration, tree.Redirect, tree.Variable, tree.DoBlock, tree.Call} <= set(kinds)
    assert kinds.index(tree.Prompt) < kinds.index(tree.DoBlock)
    assert len(met) == len(set(met))


def test_comments_are_in_their_list_and_not_among_the_children() -> None:
    found = module(PROGRAM)

    assert [comment.text for comment in found.comments] == ["# Says hello.", "# shown"]
    assert [comment.alone for comment in found.comments] == [True, False]
    assert list(tree.find(found, tree.Comment)) == []


def test_nodes_are_distinguished_even_when_they_look_the_same() -> None:
    first, second = tree.Name(0, 1, "x"), tree.Name(0, 1, "x")

    assert first != second
    assert len({first: 1, second: 2}) == 2


def test_a_tree_is_the_same_whatever_its_layout_and_spelling() -> None:
    left = parse("task a(){return [1,2]; var (x,y) = f(1) # c\n}", "l").tree
    right = parse(
        "worker a() {\n    return [\n        1,\n        2,\n    ]\n    var [x, y] = f(1)\n}\n", "r"
    ).tree

    assert tree.same(left, right)
    assert not tree.same(left, parse("worker a() { return [1, 3]; var [x, y] = f(1) }", "r").tree)


def test_bare_looks_through_parentheses_and_old_awaits() -> None:
    found = expression("((await (x)))")

    assert isinstance(tree.bare(found), tree.Name)


def test_the_literal_of_a_string_is_known_when_nothing_is_computed() -> None:
    texts = ['""', '"a\\n"', "'$x'", '"$x"', '"a${b}"']
    found = [expression(text) for text in texts]

    assert [node.literal for node in found if isinstance(node, tree.String)] == ["", "a\n", "$x", None, None]


def test_long_chains_are_flat_so_that_depth_is_nesting() -> None:
    many = 5_000
    text = f"x = {'1 + ' * many}1\ny = a{'.b(1)' * many}\nif a {{ }}{' else if a { }' * many}\n$ a{' | b' * many}\n"

    assert _depth(module(text)) < 12


def _depth(top: tree.Node) -> int:
    deepest, level = 0, [top]
    while level:
        deepest += 1
        level = [child for node in level for child in tree.children(node)]
    return deepest
