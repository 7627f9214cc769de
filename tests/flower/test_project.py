"""What `fedskew deploy init` writes."""

import io
import re
import tomllib
import zipfile

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from fedskew.errors import FedskewError
from fedskew.flower import project
from fedskew.flower.settings import Settings
from fedskew.run import Run

RUNS = [
    Run(),
    Run(partition="dirichlet:0.1,prior=0.5/1/2", clients=7, algorithm="fedprox:0.01,mean=trimmed:0.2", batch="full"),
    Run(partition="nodes", clients=3, share="beta=0.1,alpha=0.5", warm_up="0.6,fraction=0.1", holdout=0.3),
    Run(partition="groups", data="speech-commands", name='a "name" \\ of ours', drop_last=True, lr=1e-07, rounds=9),
    Run(partition="emd:1.2", clients=4, warm_up="rounds=2", share="beta=0.5", model="mlp", divergence=True, cohort=2),
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_runs_file_is_read_as_the_run(run):
    assert Run.from_toml(project.as_toml(run)) == run


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apps") / "fed"
    project.write(folder, RUNS[2], nodes=3, hosts=["fed.example", "10.0.0.7"])
    return folder


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower's own
def test_flower_takes_the_app_and_no_key_travels_in_it(app):
    config, warnings = load_and_validate(app / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["components"]["clientapp"] == "federation.client:app"
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        names = set(bundle.namelist())
    assert {"federation/server.py", "federation/client.py", "federation/run.toml"} <= names
    assert not [name for name in names if "keys" in name or name.startswith(".flwr")]


def test_every_setting_can_be_set_for_a_run(app):
    declared = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert Settings.of(declared) == Settings()
    assert set(declared) == set(Settings.model_fields)


def test_tls_and_node_keys_are_on_by_default(app):
    text = (app / "README.md").read_text()
    commands = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    superlink, _, supernode = commands[:3]
    assert "--enable-supernode-auth" in superlink
    assert "--ssl-certfile keys/server.pem" in superlink
    assert "--root-certificates keys/ca.crt --auth-supernode-private-key keys/node0" in supernode
    assert "--superlink fed.example:8000" in supernode
    assert 'data=\\"/path/of/mine.npz\\"' in supernode
    assert "--insecure" not in text
    assert "root-certificates" in (app / ".flwr" / "config.toml").read_text()
    assert sorted(p.name for p in (app / "keys").glob("*.pub")) == ["node0.pub", "node1.pub", "node2.pub"]
    assert "$" not in re.sub(r"\$(PWD|i|\(seq)", "", text)
    assert "keys/" in (app / ".gitignore").read_text().split()


def test_the_readme_says_what_the_port_allows(app):
    text = (app / "README.md").read_text()
    section = text[text.index("## What port 8000 allows") :]
    assert "/v1/control" in section
    assert "any Python" in section
    assert "reverse proxy" in section


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FedskewError, match="is not empty; give a new folder"):
        project.write(tmp_path, RUNS[0], nodes=10)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
