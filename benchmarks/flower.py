"""Seconds a round in a real federation on this machine, ours and Flower's own strategy: python -m benchmarks.flower

The same SuperLink, nodes, network, clients and training for all; only the loop of the ServerApp differs. Every message
leaves its times in a file, from which the last table comes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedskew.data import datasets
from fedskew.engine.evaluate import Exam, evaluate_many
from fedskew.flower import client_app, project, wire
from fedskew.flower.processes import Link, Processes, free_port, program
from fedskew.flower.server import serve
from fedskew.flower.settings import Settings
from fedskew.flower.trial import start_nodes
from fedskew.laboratory import Laboratory
from fedskew.run import Run

NODES = 3
TRACE = "FEDSKEW_TRACE"  # the file of times
WAYS = {
    "ours": "fedskew, one exchange a round",
    "stock": "Flower's FedAvg, train and evaluate",
    "stock-train": "Flower's FedAvg, train only",
}


def run_of(rounds: int) -> Run:
    return Run(partition="dirichlet:0.3", clients=NODES, rounds=rounds, name="benchmark")


def note(**event: Any) -> None:
    with Path(os.environ[TRACE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event | {"at": time.time()}) + "\n")


def born() -> float:
    """When this process was started."""
    ticks = float(Path("/proc/self/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def timed_client() -> ClientApp:
    """Our client, which also answers Flower's question for an evaluation, and notes when it does what."""

    def watch(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        began, used, id = time.time(), time.process_time(), message.metadata.message_id
        reply = call_next(message, context)
        note(what="worked", message=id, born=born(), began=began, cpu=[used, time.process_time() - used])
        return reply

    app = client_app(mods=[watch])

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "loss": 0.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def timed_server() -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        way, rounds = str(context.run_config["way"]), int(context.run_config["rounds"])
        push, pull = grid.push_messages, grid.pull_messages

        def pushed(messages: Any) -> Any:
            messages = list(messages)
            ids = list(push(messages))
            for message, id in zip(messages, ids, strict=True):
                config = wire.config_of(message.content)
                note(what="pushed", message=id, kind=message.metadata.message_type, round=config.get("server-round"))
            return ids

        def pulled(ids: Any) -> Any:
            replies = list(pull(ids))
            for reply in replies:
                note(what="pulled", message=reply.metadata.reply_to_message_id)
            return replies

        grid.push_messages, grid.pull_messages = pushed, pulled  # type: ignore[method-assign, assignment]
        note(what="start", way=way)
        if way == "ours":
            serve(grid, run_of(rounds), Settings.of(context.run_config))
        else:
            stock(grid, run_of(rounds), 1.0 if way == "stock" else 0.0)
        note(what="end", way=way)

    return app


def stock(grid: Grid, run: Run, evaluated: float) -> None:
    """Flower's own strategy with our clients and our central test."""
    data = datasets.load(run.data)
    lab = Laboratory.of(run, data, "cpu", "auto", "tf32")
    w, stats = lab.initial
    about: dict[str, Any] = {"run": json.dumps(run.spec()), "data": wire.Card.of(data, data.transform).written()}

    def tested(t: int, arrays: ArrayRecord) -> MetricRecord:
        found = wire.unpack(arrays, w | stats)
        exam = Exam({n: found[n] for n in w}, {n: found[n] for n in stats}, lab.test.x, lab.test.y, lab.classes)
        (scores,) = evaluate_many(lab.problem, [exam])
        note(what="row", round=t)
        return MetricRecord({"accuracy": scores.accuracy})

    strategy = FedAvg(fraction_evaluate=evaluated, min_available_nodes=NODES, min_train_nodes=NODES)
    config = ConfigRecord(about | {"engine": "auto", "session": ""})
    strategy.start(grid, wire.pack(w | stats), run.rounds, train_config=config, evaluate_fn=tested)


def measured(folder: Path, way: str, rounds: int) -> list[dict[str, Any]]:
    """The events of one run."""
    app, trace = folder / way, folder / f"{way}.jsonl"
    settings = Settings(store=str(folder / "store"), device="cpu", deadline=600, limit=600)
    project.write(app, run_of(rounds), nodes=NODES, tls=False, settings=settings)
    for name in ("server", "client"):
        text = f"from benchmarks.flower import timed_{name}\n\napp = timed_{name}()\n"
        (app / "federation" / f"{name}.py").write_text(text, encoding="utf-8")
    with (app / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f'way = "{way}"\nrounds = {rounds}\n')
    link = Link(folder / "superlink", free_port())
    link.configure()
    with Processes(folder, {TRACE: str(trace)}) as programs:
        programs.start("superlink", link.command())
        programs.wait_for(link)
        start_nodes(programs, link, NODES)
        time.sleep(15)  # all nodes are up
        command = [program("flwr"), "run", str(app), "here", "--stream"]
        if programs.start("run", command, home="superlink").wait() != 0:
            raise SystemExit(programs.tail("run"))
    return [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]


def per_round(events: list[dict[str, Any]]) -> list[float]:
    """Seconds from one round's first message to the next one's, or to the end; what is before round 1 is left out."""
    (end,) = [e["at"] for e in events if e["what"] == "end"]
    starts: dict[int, float] = {}
    for e in events:
        if e["what"] == "pushed" and e["kind"] == wire.TRAIN:
            starts.setdefault(e["round"], e["at"])
    times = [*starts.values(), end]
    return [b - a for a, b in pairwise(times)]


def parts(events: list[dict[str, Any]]) -> dict[str, float]:
    """Mean seconds of what happens to a message that asks for training, over all of them."""
    by = {what: {e["message"]: e for e in events if e["what"] == what} for what in ("pushed", "worked", "pulled")}
    rows = []
    for id, worked in by["worked"].items():
        if by["pushed"][id]["kind"] != wire.TRAIN:
            continue
        pushed, pulled = by["pushed"][id]["at"], by["pulled"][id]["at"]
        steps = [worked["born"] - pushed, worked["began"] - worked["born"], worked["at"] - worked["began"]]
        rows.append([*steps, pulled - worked["at"], *worked["cpu"]])
    names = ["until the node starts a process", "Python, Flower and torch start", "load and train", "the way back"]
    names += ["CPU of the start", "CPU of load and train"]
    return {
        name: round(statistics.mean(column), 2) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--way", choices=WAYS, nargs="*", default=list(WAYS))
    parser.add_argument("--json", type=Path, help="what is there already of other ways stays")
    args = parser.parse_args()
    found: dict[str, Any] = {"date": str(date.today()), "cores": os.cpu_count(), "nodes": NODES, "rounds": args.rounds}
    if args.json and args.json.exists():
        found = json.loads(args.json.read_text(encoding="utf-8")) | found
    for way in args.way:
        title, before = WAYS[way], os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            events = measured(Path(folder), way, args.rounds)
        rounds, load = per_round(events), [round(before, 1), round(os.getloadavg()[0], 1)]
        seconds = [round(s, 1) for s in rounds]
        found[way] = {"title": title, "seconds": seconds, "message": parts(events), "load": load}
        print(
            f"{title}: {statistics.median(rounds):.1f} s a round ({', '.join(f'{s:.1f}' for s in rounds)})", flush=True
        )
        for name, seconds in found[way]["message"].items():
            print(f"  {name}: {seconds:.1f} s", flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
