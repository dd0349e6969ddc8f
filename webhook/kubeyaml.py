"""YAML as Kubernetes reads it: the dialect of Go's sigs.k8s.io/yaml.

PyYAML's own loader would turn ``2024-01-01`` into a date, ``1:30`` into 90 and ``1e3`` into a string; kubectl does
none of this. Maps come with string keys, as they do once kubectl has turned them into JSON. A later duplicate of a key
wins, as it does there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YAMLError(ValueError):
    """The text is no YAML; the message is one line."""


class _KubernetesLoader(_Loader):  # type: ignore[misc, valid-type]
    """The safe loader with Go's resolution of plain scalars."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(value, deep=deep)
            for key, value in node.value
        }


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise YAMLError("a map's key is no plain value")


class _KubernetesDumper(yaml.SafeDumper):
    """The safe dumper, which quotes every string that Go would read as something else."""


_KubernetesLoader.yaml_implicit_resolvers = {}
for tag, pattern, first in (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (
        "tag:yaml.org,2002:bool",
        r"y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE",
        list("yYoOtTnNfF"),
    ),
    ("tag:yaml.org,2002:int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("tag:yaml.org,2002:merge", r"<<", ["<"]),
):
    _KubernetesLoader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), first)
    _KubernetesDumper.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), first)


def _construct_bool(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in {"y", "yes", "on", "true"}


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.lstrip("+"))
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567"
    return sign * int(digits, 8 if octal else 0)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower().replace("_", "")
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_KubernetesLoader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
_KubernetesLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_KubernetesLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def load_all(text: str) -> list[Any]:
    """Every document of a text, empty ones left out. Raises YAMLError."""
    try:
        return [document for document in yaml.load_all(text, Loader=_KubernetesLoader) if document is not None]
    except YAMLError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YAMLError(_one_line(error)) from None


def load(text: str) -> Any:
    """The one document of a text; None where it is empty. Raises YAMLError, also for several documents."""
    documents = load_all(text)
    if len(documents) > 1:
        raise YAMLError("more than one document")
    return documents[0] if documents else None


def dump(value: Any) -> str:
    """A value as YAML that Kubernetes and we read back alike; keys keep their order."""
    return yaml.dump(value, Dumper=_KubernetesDumper, sort_keys=False, allow_unicode=True, width=1000)


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split()) or type(error).__name__
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
