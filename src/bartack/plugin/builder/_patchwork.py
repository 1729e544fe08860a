"""Reads a plugin out of a Patchwork program: its trait with the base ``Agent``, its skills and its exported workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from bartack.config.load import load_config
from bartack.errors import PluginTraitError
from bartack.language import schema, tree, types
from bartack.language.checking.program import CheckedModule
from bartack.language.syntax.docs import read_doc
from bartack.plugin._manifest import EntryParameter, JsonSchema
from bartack.plugin.builder._source import PluginSource, SourceEntry, folded, make_source, read_program
from bartack.plugin.rules._names import kebab
from bartack.runtime.patchwork import check_program


def read_patchwork(file: Path, trait: str = "") -> PluginSource:
    """The plugin that a Patchwork program declares; nothing of the program is executed.

    Args:
        file: The entry module.
        trait: Which trait is the plugin, if there are several.

    Raises:
        ProgramFaultError: The program has errors.
        PluginTraitError: There is no trait for a plugin, or more than one.
        PluginInvalidError: A name is not allowed.
    """
    found = check_program(file)
    program = found.checked.program
    reader = _Reader(program.entry)
    chosen = reader.choose(trait)
    return make_source(
        chosen.name.name,
        read_doc(chosen.doc).text,
        reader.place(chosen.name),
        found.entry,
        tuple(reader.entries(chosen)),
        read_program(found.root, [module.path for module in program.modules]),
        load_config(found.root),
    )


class _Reader:
    """Reads the entry module of a program."""

    def __init__(self, module: CheckedModule) -> None:
        self._module = module

    def place(self, node: tree.Node) -> str:
        at = self._module.source.place(node.start)
        return f"{self._module.path}:{at.line}:{at.column}"

    def choose(self, wanted: str) -> tree.Trait:
        """The trait that is the plugin."""
        traits = [unit for unit in self._module.syntax.units if isinstance(unit, tree.Trait)]
        fit = [trait for trait in traits if _is_agent(trait)]
        exported = [trait for trait in fit if trait.export or trait.default]
        if wanted:
            named = [trait for trait in fit if trait.name.name == wanted]
            if named:
                return named[0]
            known = ", ".join(trait.name.name for trait in fit) or "none"
            problem = f"there is no trait {wanted} with the base Agent; there are: {known}"
            raise PluginTraitError(self._module.path, problem)
        if len(exported) == 1:
            return exported[0]
        if exported:
            names = ", ".join(trait.name.name for trait in exported)
            problem = f"{len(exported)} exported traits have the base Agent: {names}"
            raise PluginTraitError(self.place(exported[1].name), problem, "Choose one with --trait NAME.")
        if fit:
            name = fit[0].name.name
            problem = f"the trait {name} is not exported"
            raise PluginTraitError(self.place(fit[0].name), problem, f"Write: export trait {name}: Agent")
        if traits:
            name = traits[0].name.name
            problem = f"the trait {name} does not have the base Agent"
            raise PluginTraitError(self.place(traits[0].name), problem, f"Write: export trait {name}: Agent")
        raise PluginTraitError(self._module.path, "there is no trait with the base Agent")

    def entries(self, trait: tree.Trait) -> Iterator[SourceEntry]:
        """The skills and commands of the trait, then those of skills, then exported workers."""
        for method in trait.methods:
            if isinstance(method, tree.Declaration):
                yield from self._annotated(method, f"{trait.name.name}.{method.name.name}")
        for unit in self._module.syntax.units:
            if isinstance(unit, tree.Declaration) and unit.word == "skill":
                yield from self._annotated(unit, unit.name.name)
        for unit in self._module.syntax.units:
            if isinstance(unit, tree.Declaration) and unit.word == "worker" and unit.export:
                yield self._worker(unit)

    def _annotated(self, node: tree.Declaration, member: str) -> Iterator[SourceEntry]:
        given = {one.name.name: kebab(_text_of(one) or node.name.name) for one in node.annotations}
        skill = given.get("skill") or (kebab(node.name.name) if node.word == "skill" else "")
        command = given.get("command", "")
        if skill or command:
            yield SourceEntry(
                kind="skill" if skill else "command",
                name=skill or command,
                member=member,
                params=tuple(self._parameters(node)),
                returns=self._returns(node),
                doc=folded(read_doc(node.doc).text),
                place=self.place(node.name),
                command=command if skill else "",
            )

    def _worker(self, node: tree.Declaration) -> SourceEntry:
        doc = read_doc(node.doc)
        return SourceEntry(
            kind="worker",
            name=kebab(node.name.name),
            member=node.name.name,
            params=tuple(self._parameters(node)),
            returns=self._returns(node),
            doc=folded(doc.text),
            place=self.place(node.name),
            color=doc.tag("color"),
            model=doc.tag("model"),
        )

    def _parameters(self, node: tree.Declaration) -> Iterator[EntryParameter]:
        texts = read_doc(node.doc).arguments
        for item in node.parameters.items:
            kind = self._type(item.type)
            yield EntryParameter(
                name=item.name.name,
                type=types.describe(kind),
                schema=_schema(kind),
                required=item.default is None,
                doc=folded(texts.get(item.name.name, "")),
            )

    def _returns(self, node: tree.Declaration) -> JsonSchema:
        return _schema(self._type(node.result))

    def _type(self, node: tree.Type | None) -> types.Type:
        return types.ANY if node is None else self._module.types.get(node, types.ANY)


def _schema(kind: types.Type) -> JsonSchema:
    return cast("JsonSchema", schema(kind))


def _is_agent(trait: tree.Trait) -> bool:
    return any(
        isinstance(base, tree.NamedType) and [name.name for name in base.names] == ["Agent"]
        for base in trait.bases
    )


def _text_of(annotation: tree.Annotation) -> str:
    """The name that an annotation gives, written as a word or as a string."""
    argument = annotation.argument
    if isinstance(argument, tree.Name):
        return argument.name
    return (argument.literal or "") if isinstance(argument, tree.String) else ""
