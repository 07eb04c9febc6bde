"""The quick-start notebook runs from top to bottom."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.checkout import ROOT
from tests.engine.tiny import SHORT, tiny_overrides


def execute(notebook, folder) -> None:
    """Execute a notebook in a folder, training shortened."""
    (parameters,) = [i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())]
    shortened = tiny_overrides(*SHORT, "logger.pictures=true")
    notebook.cells.insert(parameters + 1, nbformat.v4.new_code_cell(f"overrides = {shortened!r}"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """The notebook, and an environment in which its kernel finds this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    return nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)


@pytest.mark.slow
def test_notebook_runs_and_shows_pictures(notebook, tmp_path):
    execute(notebook, tmp_path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 3
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 1


def test_a_cell_that_fails_is_noticed(notebook, tmp_path):
    notebook.cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    notebook.cells.append(nbformat.v4.new_code_cell("raise ValueError('planted')"))
    with pytest.raises(CellExecutionError, match="planted"):
        execute(notebook, tmp_path)


def test_notebook_is_stored_without_results(notebook):
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)
