"""Checks of the project. ``nox`` runs the usual ones; ``nox --no-venv`` runs them in the active environment."""

from __future__ import annotations

import os

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["tests", "lint", "types", "docs"]
nox.options.reuse_existing_virtualenvs = True


def install(session: nox.Session) -> None:
    """Install the project and its tools, unless the session runs in the active environment."""
    if session.virtualenv.venv_backend != "none":
        session.install("--upgrade", "pip>=25.1")  # the first that knows --group
        session.install("-e", ".", "--group", "dev")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need no GPU."""
    install(session)
    session.run("pytest", *session.posargs)


@nox.session(default=False)
def explore(session: nox.Session) -> None:
    """Run the property tests on new random examples; the other sessions repeat the same ones."""
    install(session)
    session.run("pytest", "--hypothesis-profile", "explore", "-m", "hypothesis", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and the direction of imports."""
    install(session)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    install(session)
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Check the generated tables and build the site; a broken link fails."""
    install(session)
    session.run("python", "-m", "lucid_yolo.perf.docs", "--check")
    session.run("python", "-m", "lucid_yolo.engine.figures", "--check")
    session.run("mkdocs", "build", "--strict", "--site-dir", os.environ.get("LUCID_YOLO_SITE", "site"))


@nox.session(default=False)
def package(session: nox.Session) -> None:
    """Build sdist and wheel, and test the wheel from another directory."""
    install(session)
    session.run("python", "-m", "build", *session.posargs)
    session.run("pytest", "tests/packaging")


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Run the tests that need a CUDA device; fail where there is none, so that they are never skipped in silence."""
    install(session)
    session.run("python", "-c", "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'no CUDA device')")
    session.run("pytest", "-n", "0", "-m", "gpu", *session.posargs)


@nox.session(default=False)
def readme(session: nox.Session) -> None:
    """Run the README's two commands as they stand, from a bare copy: install and train, run the tests."""
    install(session)
    session.run("pytest", "-m", "install", "tests/docs/test_readme.py", "--timeout", "3600", *session.posargs)
