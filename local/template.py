"""From ``template.yaml`` to plain CloudFormation: the SAM transform, with everything local put in its place.

Local folders become S3 placeholders whose key carries the resource's logical id, so that the deployed truth can be
led back to the folder; a state machine's definition file is inlined.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import yaml

from local.settings import BUCKET, REGION

if TYPE_CHECKING:
    from pathlib import Path

_UNTAGGED = {"Ref": "Ref", "Condition": "Condition"}


class _Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms (`!Sub`, `!GetAtt a.b`) as their long ones."""


def _short_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {_UNTAGGED.get(suffix, f"Fn::{suffix}"): value}


_Loader.add_multi_constructor("!", _short_form)


def load_yaml(text: str) -> Any:
    """Parses a template or a definition; dates stay text, short forms become long ones."""
    return yaml.load(text, _Loader)


# "2010-09-09" is a version, not a day.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Transformed:
    """A template ready for CloudFormation, and what it was made from.

    Attributes:
        source: The SAM template as written.
        resources: The plain template.
        folders: Local folder of every function and layer, by the logical id in the source.
        parameters: Values for the template's parameters.
    """

    source: dict[str, Any]
    plain: dict[str, Any]
    folders: dict[str, Path]
    parameters: dict[str, str]


def transform_template(path: Path, parameters: dict[str, str], cache_dir: Path | None) -> Transformed:
    """Reads and transforms a SAM template.

    Args:
        path: The template.
        parameters: Wanted values; those that the template does not declare are dropped.
        cache_dir: Where a transform's result is kept under the hash of its input (the transform is pure and takes
            half a second to import).

    Raises:
        FileNotFoundError: The template or a file that it names is missing.
        ValueError: The template is not one that SAM accepts.
    """
    source = load_yaml(path.read_text(encoding="utf-8"))
    declared = source.get("Parameters", {})
    values = {name: str(spec["Default"]) for name, spec in declared.items() if "Default" in spec}
    values |= {name: value for name, value in parameters.items() if name in declared}
    missing = sorted(set(declared) - set(values))
    if missing:
        raise ValueError(f"{path.name}: no value for the parameter(s) {', '.join(missing)}")
    folders: dict[str, Path] = {}
    prepared, definitions = _replace_local_paths(source, path.parent, folders)
    plain = _cached_sam_transform(prepared, values, cache_dir)
    for logical_id, definition in definitions.items():
        properties = plain["Resources"][logical_id]["Properties"]
        properties.pop("DefinitionSubstitutions", None)
        properties["DefinitionString"] = definition
    return Transformed(source=source, plain=plain, folders=folders, parameters=values)


def _replace_local_paths(
    source: dict[str, Any], base: Path, folders: dict[str, Path]
) -> tuple[dict[str, Any], dict[str, Any]]:
    prepared = json.loads(json.dumps(source))
    global_code = source.get("Globals", {}).get("Function", {}).get("CodeUri")
    definitions: dict[str, Any] = {}
    for logical_id, resource in prepared["Resources"].items():
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::Serverless::Function":
                folders[logical_id] = _folder(base, properties.get("CodeUri", global_code), logical_id)
                properties["CodeUri"] = f"s3://{BUCKET}/{logical_id}"
                # moto's CloudFormation has no aliases, and a permission on one would end the deploy.
                for name in ("AutoPublishAlias", "VersionDeletionPolicy"):
                    properties.pop(name, None)
            case "AWS::Serverless::LayerVersion":
                folders[logical_id] = _folder(base, properties.get("ContentUri"), logical_id)
                properties["ContentUri"] = f"s3://{BUCKET}/{logical_id}"
            case "AWS::Serverless::StateMachine" if "DefinitionUri" in properties:
                definition = load_yaml((base / properties.pop("DefinitionUri")).read_text(encoding="utf-8"))
                substitutions = properties.pop("DefinitionSubstitutions", {})
                definitions[logical_id] = _substituted(json.dumps(definition, ensure_ascii=False), substitutions)
                properties["Definition"] = {"StartAt": "Placeholder", "States": {"Placeholder": {"Type": "Succeed"}}}
    return prepared, definitions


def _folder(base: Path, uri: Any, logical_id: str) -> Path:
    if not isinstance(uri, str):
        raise ValueError(f"{logical_id}: CodeUri or ContentUri must name a local folder")
    folder = (base / uri).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"{logical_id}: {uri} is not a folder beside the template")
    return folder


def _substituted(definition: str, substitutions: dict[str, Any]) -> Any:
    """`DefinitionSubstitutions` as CloudFormation applies them: only the declared names; all else stays."""

    def keep_or_name(match: re.Match[str]) -> str:
        return match[0] if match[1] in substitutions else "${!" + match[1] + "}"

    text = re.sub(r"\$\{([^}!]*)\}", keep_or_name, definition)
    return {"Fn::Sub": [text, substitutions]} if substitutions else definition


def _cached_sam_transform(
    prepared: dict[str, Any], parameters: dict[str, str], cache_dir: Path | None
) -> dict[str, Any]:
    key_source = json.dumps([version("aws-sam-translator"), prepared, parameters], sort_keys=True)
    cached = cache_dir and cache_dir / f"transform-{hashlib.sha256(key_source.encode()).hexdigest()[:32]}.json"
    if cached and cached.is_file():
        plain: dict[str, Any] = json.loads(cached.read_text(encoding="utf-8"))
        return plain
    plain = _sam_transform(prepared, parameters)
    if cached and cache_dir:
        cache_dir.mkdir(parents=True, exist_ok=True)
        part = cached.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(plain), encoding="utf-8")
        part.replace(cached)
    return plain


def _sam_transform(prepared: dict[str, Any], parameters: dict[str, str]) -> dict[str, Any]:
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.translator.transform import transform

    class NoManagedPolicies:
        def load(self) -> dict[str, str]:
            return {}

    try:
        plain: dict[str, Any] = transform(prepared, dict(parameters), NoManagedPolicies())
    except InvalidDocumentException as error:
        reasons = "; ".join(str(cause.message) for cause in error.causes)
        raise ValueError(f"the SAM transform refuses the template: {reasons}") from error
    return plain
