"""The options that send a run's questions to a Ray cluster, and the cluster that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from dragin_lab.cli.options import NUMBER, together
from dragin_lab.text import split_credentials, without_secrets

if TYPE_CHECKING:
    from dragin_lab.run.cluster import Cluster


cluster_options = together(
    click.option(
        "--ray", metavar="ADDRESS", panel="Cluster",
        help="Answer on a Ray cluster: the head's HOST:PORT, auto for this machine's cluster, or local to start "
        "one here. The run directory is the same, and goes on with or without.",
    ),
    click.option(
        "--actors", type=int, panel="Cluster",
        help="Workers, each with a model; default as many as there is room for.",
    ),
    click.option(
        "--gpus-per-actor", type=NUMBER, panel="Cluster",
        help="GPUs of a worker: 0.5 puts two on one. Default 1 where the cluster has GPUs.",
    ),
    click.option(
        "--cpus-per-actor", type=NUMBER, panel="Cluster", help="CPUs of a worker, and torch's threads there; default 1."
    ),
)  # fmt: skip


def check_cluster(options: dict[str, Any]) -> None:
    """Refuse what no cluster can be made of, before anything is loaded."""
    pool = _pool(options)
    if options["ray"] is None:
        for name in pool:
            raise click.UsageError(f"--{name.replace('_', '-')} says how a cluster is used; give --ray too")
        return
    for name in ("device_map", "quantization"):
        if options[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} and --ray: a worker loads its model whole; leave out one"
            )
    if split_credentials(options["ray"])[0]:
        raise click.UsageError(f"--ray {without_secrets(options['ray'])}: Ray takes no password; leave it out")
    from dragin_lab.run.cluster import prepare_ray

    prepare_ray(options["ray"], **pool)


def open_cluster(options: dict[str, Any], searching: bool) -> Cluster:
    """The cluster of the options, whose workers load what this process would have loaded."""
    from dragin_lab.run.cluster import Cluster, Recipe

    named = {name: options[name] for name in ("model", "dtype", "device", "layer", "heads", "retriever", "corpus")}
    recipe = Recipe(
        **named, sample=options["decoding"] == "sample", searches=searching, fields=options["corpus_fields"]
    )
    return Cluster(options["ray"], recipe, **_pool(options))


def _pool(options: dict[str, Any]) -> dict[str, Any]:
    """What the options say about the workers."""
    names = ("actors", "gpus_per_actor", "cpus_per_actor")
    return {name: options[name] for name in names if options[name] is not None}
