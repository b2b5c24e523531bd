"""Options that every command which brings a testbed up has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from containernet_env.base.errors import UsageError
from containernet_env.fidelity.rtt import Tolerance
from containernet_env.model.choices import ProfileKind
from containernet_env.model.link import SEED_MAX

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ToleranceType(click.ParamType[Tolerance]):
    """How far an RTT may be off: a duration, a percentage, or both with a comma ("1ms,15%": the larger counts)."""

    name = "tolerance"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Tolerance:
        """A Tolerance."""
        if isinstance(value, Tolerance):
            return value
        try:
            return Tolerance.parse(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class KindsType(click.ParamType[tuple[str, ...]]):
    """Kinds of profiles with commas between."""

    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The kinds, each once."""
        if isinstance(value, tuple):
            return value
        kinds = tuple(dict.fromkeys(part.strip() for part in str(value).split(",")))
        known = get_args(ProfileKind)
        for kind in kinds:
            if kind not in known:
                self.fail(f"got {kind!r}, allowed: {', '.join(known)}, with commas between", param, ctx)
        return kinds


def testbed_options(command: _Command) -> _Command:
    """Add --engine, --links, --switches, --seed, --rtt-tolerance and --congestion-control."""
    options = (
        click.option(
            "--engine",
            type=click.Choice(["builtin", "containernet"]),
            default="builtin",
            show_default=True,
            help="What makes hosts and links: this project, or the original Containernet where it is installed.",
        ),
        click.option(
            "--links",
            type=click.Choice(["auto", "netem", "emulator"]),
            default="auto",
            show_default=True,
            help="What carries out delay and bandwidth: auto is the link emulator; netem is a cross-check.",
        ),
        click.option(
            "--switches",
            type=click.Choice(["auto", "ovs", "bridge"]),
            default="auto",
            show_default=True,
            help="What joins links by netem: Open vSwitch or a Linux bridge; goes with --links netem.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, SEED_MAX),
            metavar="N",
            help="What losses and jitter of links without a seed are drawn from; drawn and recorded if left out.",
        ),
        click.option(
            "--rtt-tolerance",
            type=ToleranceType(),
            default=None,
            metavar="SPEC",
            help="How far a round trip may be off: '1ms', '15%', or '1ms,15%' (the larger counts). Default: by the "
            "kind of links.",
        ),
        click.option(
            "--congestion-control",
            "tcp_congestion_control",
            default="cubic",
            show_default=True,
            metavar="NAME",
            help="TCP congestion control of every host.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


testbed_options.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name begins with


def strict_option(command: _Command) -> _Command:
    """Add --strict."""
    text = "Exit status 1 also where the figures of a row are not certainly valid."
    return click.option("--strict", is_flag=True, help=text)(command)


def tls_options(command: _Command) -> _Command:
    """Add the certificates of a Dask cluster, with the names that `dask scheduler` has for them."""
    options = (
        ("--tls-ca-file", "The certificate of the authority that scheduler, workers and sweeps are of (PEM)."),
        ("--tls-cert", "The certificate that is shown to the others (PEM)."),
        ("--tls-key", "Its key (PEM)."),
    )
    for name, text in reversed(options):
        command = click.option(name, type=click.Path(path_type=Path), metavar="FILE", help=text)(command)
    return command
