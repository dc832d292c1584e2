"""The manifests in examples/kuberay: fields and their types, the commands in them, and what must agree between them.

No cluster is asked. `SCHEMAS` holds the part of the schemas of KubeRay's API (ray.io/v1) and of Kubernetes that the
manifests use, by their public field names; a field that is not in it is refused, so that a misspelt one is found here.
Names, types, what is required, limits of names and numbers, and what the operator refuses besides were compared with
KubeRay's own types and checks. Whether an operator then starts the pods is not checked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from penstock.cli.app import app

PLACE = Path(__file__).parents[1] / "examples" / "kuberay"
MANIFESTS = sorted(PLACE.glob("*.yaml"))


def mapping(required: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": required.split(), "additionalProperties": False}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


TEXT, FLAG = {"type": "string", "minLength": 1}, {"type": "boolean"}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}  # all of those used here are int32
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
QUANTITY = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?$"}
QUANTITIES = {"type": "object", "additionalProperties": QUANTITY}
# The operator wants names that begin with a letter, and room for what it appends to them.
RAY_NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
NAMES = {"RayCluster": {**RAY_NAME, "maxLength": 53}, "RayJob": {**RAY_NAME, "maxLength": 47}}
RESOURCES = mapping("", requests=QUANTITIES, limits=QUANTITIES)
CONTAINER = mapping(
    "name image",
    name=NAME,
    image=TEXT,
    command=listed(TEXT),
    ports=listed(mapping("containerPort", name=NAME, containerPort={**NUMBER, "maximum": 65535})),
    env=listed(mapping("name", name=TEXT, value=TEXT)),
    resources=RESOURCES,
    readinessProbe=mapping("", exec=mapping("command", command=listed(TEXT)), periodSeconds=NUMBER),
    volumeMounts=listed(mapping("name mountPath", name=NAME, mountPath=TEXT, readOnly=FLAG)),
)
VOLUME = mapping("name", name=NAME, persistentVolumeClaim=mapping("claimName", claimName=NAME))
POD = mapping("containers", containers=listed(CONTAINER), volumes=listed(VOLUME))
TEMPLATE = mapping("spec", metadata=mapping("", labels=TEXTS), spec=POD)
SERVICE_TYPE = {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}
CLUSTER = mapping(
    "headGroupSpec",
    rayVersion=TEXT,
    headGroupSpec=mapping("template rayStartParams", serviceType=SERVICE_TYPE, rayStartParams=TEXTS, template=TEMPLATE),
    workerGroupSpecs=listed(
        mapping(
            "groupName template minReplicas maxReplicas rayStartParams",
            groupName=NAME, replicas=NUMBER, minReplicas=NUMBER, maxReplicas=NUMBER, rayStartParams=TEXTS,
            template=TEMPLATE,
        )
    ),
)  # fmt: skip
JOB = mapping(
    "entrypoint",
    entrypoint=TEXT,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=NUMBER,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    backoffLimit=NUMBER,
    rayClusterSpec=CLUSTER,
) | {
    "if": {"properties": {"ttlSecondsAfterFinished": {"minimum": 1}}, "required": ["ttlSecondsAfterFinished"]},
    "then": {"properties": {"shutdownAfterJobFinishes": {"const": True}}, "required": ["shutdownAfterJobFinishes"]},
}
CLAIM = mapping("accessModes resources", accessModes=listed({"const": "ReadWriteMany"}), resources=RESOURCES)
SELECTOR = mapping("matchLabels", matchLabels=TEXTS)
SCHEMAS = {
    ("ray.io/v1", "RayJob"): JOB,
    ("ray.io/v1", "RayCluster"): CLUSTER,
    ("v1", "PersistentVolumeClaim"): CLAIM,
    ("apps/v1", "Deployment"): mapping("selector template", replicas=NUMBER, selector=SELECTOR, template=TEMPLATE),
    ("v1", "Service"): mapping(
        "ports", selector=TEXTS, ports=listed(mapping("port", name=NAME, port=NUMBER, targetPort=TEXT))
    ),
}


def resources(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def every(kind: str) -> list[dict[str, Any]]:
    return [found for path in MANIFESTS for found in resources(path) if found["kind"] == kind]


def check(found: dict[str, Any]) -> None:
    spec = SCHEMAS[found["apiVersion"], found["kind"]]
    meta = mapping("name", name=NAMES.get(found["kind"], NAME), labels=TEXTS)
    whole = mapping("apiVersion kind metadata spec", apiVersion=TEXT, kind=TEXT, metadata=meta, spec=spec)
    jsonschema.validate(found, whole, cls=jsonschema.Draft202012Validator)


def clusters() -> list[dict[str, Any]]:
    return [*(job["spec"]["rayClusterSpec"] for job in every("RayJob")), *(c["spec"] for c in every("RayCluster"))]


def pods() -> Iterator[dict[str, Any]]:
    for cluster in clusters():
        yield cluster["headGroupSpec"]["template"]["spec"]
        yield from (group["template"]["spec"] for group in cluster["workerGroupSpecs"])
    yield from (deployment["spec"]["template"]["spec"] for deployment in every("Deployment"))


def parsed(command: list[str]) -> dict[str, Any]:
    """What Penstock's own command line makes of a command; it refuses options that it does not have."""
    assert command[0] == "penstock"
    group = typer.main.get_command(app)
    own = group.commands[command[1]]  # type: ignore[attr-defined]
    with own.make_context(command[1], command[2:]) as context:
        return dict(context.params)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_fields_are_those_of_the_schemas(path: Path) -> None:
    for found in resources(path):
        check(found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda job: job["spec"].update(entryPoint="penstock"),
        lambda job: job["spec"].pop("entrypoint"),
        lambda job: job["spec"].update(ttlSecondsAfterFinished="600"),
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("groupName"),
        lambda job: job["metadata"].update(name="Penstock_Train"),
        lambda job: job["metadata"].update(name="4-trainings"),
        lambda job: job["metadata"].update(name="a" * 48),
        lambda job: job["spec"].update(shutdownAfterJobFinishes=False),
        lambda job: job["spec"].update(backoffLimit=2**31),
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"].update(resources={"CPU": 0}),
    ],
)
def test_what_the_api_would_refuse_is_refused_here(damage: Any) -> None:
    (job,) = every("RayJob")
    damage(job)
    with pytest.raises(jsonschema.ValidationError):
        check(job)


def test_the_commands_are_penstocks_and_fit_the_cluster() -> None:
    (job,) = every("RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    asked = parsed(shlex.split(job["spec"]["entrypoint"]))
    workers = cluster["workerGroupSpecs"][0]
    cpus = workers["replicas"] * int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert asked["cluster"] == "auto" and int(asked["trainers"]) <= cpus
    assert int(asked["replicas"]) == 2 and workers["replicas"] >= 2  # a standby is on another machine
    (deployment,) = every("Deployment")
    serve = parsed(deployment["spec"]["template"]["spec"]["containers"][0]["command"])
    assert serve["follow"] and serve["model"] == asked["feed"]


def test_groups_of_workers_have_names_of_their_own_and_as_many_pods_as_they_may() -> None:
    for cluster in clusters():
        groups = cluster["workerGroupSpecs"]
        assert len({group["groupName"] for group in groups}) == len(groups)
        assert all(group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in groups)
        assert all("labels" not in group["rayStartParams"] for group in [cluster["headGroupSpec"], *groups])


def test_pods_have_one_image_one_folder_and_memory_that_is_theirs() -> None:
    (claim,) = every("PersistentVolumeClaim")
    images = set()
    for pod in pods():
        (volume,), (container,) = pod["volumes"], pod["containers"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/shared"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        images.add(container["image"])
    assert images == {f"penstock:{metadata.version('penstock')}"}


def test_ray_has_one_version() -> None:
    (line,) = [line for line in (PLACE / "Dockerfile").read_text().splitlines() if line.startswith("ARG RAY=")]
    assert {cluster["rayVersion"] for cluster in clusters()} == {line.removeprefix("ARG RAY=")}
