"""The options that send a run's questions to a Ray cluster, and the cluster that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from dragin_lab.cli.options import NUMBER, together

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
    if options["ray"] is None:
        for name in ("actors", "gpus_per_actor", "cpus_per_actor"):
            if options[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} says how a cluster is used; give --ray too")
        return
    for name in ("device_map", "quantization"):
        if options[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} and --ray: a worker loads its model whole; leave out one"
            )
    from dragin_lab.run.cluster import check_address, check_numbers, import_ray

    check_numbers(options["actors"], options["gpus_per_actor"], options["cpus_per_actor"] or 1.0)
    import_ray(local=options["ray"].strip() == "local")
    check_address(options["ray"])


def open_cluster(options: dict[str, Any], searching: bool) -> Cluster:
    """The cluster of the options, whose workers load what this process would have loaded."""
    from dragin_lab.run.cluster import Cluster
    from dragin_lab.run.cluster_worker import Recipe

    heads = options["heads"]
    recipe = Recipe(
        **{name: options[name] for name in ("model", "dtype", "device", "layer", "retriever", "corpus")},
        heads=None if heads is None else tuple(heads), sample=options["decoding"] == "sample", searches=searching,
    )  # fmt: skip
    return Cluster(
        options["ray"], recipe, actors=options["actors"], gpus_per_actor=options["gpus_per_actor"],
        cpus_per_actor=options["cpus_per_actor"] or 1.0,
    )  # fmt: skip
