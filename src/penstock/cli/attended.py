"""A training job with a person before it: told how far it is, watched in a browser, stopped by Ctrl-C."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import typer

from penstock.cli.app import console, print_json, say
from penstock.cli.stopping import GracefulStop
from penstock.cli.words import in_options
from penstock.core.metric_names import metric_words

if TYPE_CHECKING:
    from penstock.jobs import TrainJob


class AttendedRun:
    """What surrounds a job on the command line; `hooks` go into the job, `run` runs it and shows what came out."""

    def __init__(self, output: str, progress: bool | None, as_json: bool) -> None:
        from penstock.jobs.events import Listeners
        from penstock.jobs.progress_lines import ProgressLines
        from penstock.jobs.recorder import RunRecorder

        self.output, self.as_json = output, as_json
        self.recorder, self.stop, self._stack = RunRecorder(output), GracefulStop(), ExitStack()
        self.lines = ProgressLines(say)
        listener = Listeners(self.stop.listen, *(() if as_json else (self.lines,)), self.recorder)
        self.hooks: dict[str, Any] = {"listener": listener, "stop": self.stop, "progress": progress}

    def __enter__(self) -> Self:
        self._stack.enter_context(self.stop)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def watch(self, port: int) -> None:
        """Serve the report while it grows."""
        from penstock.report.live import LiveView

        view = self._stack.enter_context(LiveView(self.recorder, port=port))
        say(f"watch it at {view.url}")

    def log_to(self, tensorboard: str) -> None:
        """Write TensorBoard events besides."""
        from penstock.train.tensorboard import TensorBoardLogger

        self.hooks["callbacks"] = [self._stack.enter_context(TensorBoardLogger(tensorboard))]

    def run(self, job: TrainJob) -> None:
        from penstock.jobs import TrainingStopped
        from penstock.report.summary import show_training

        try:
            figures = {**job.run().to_dict(), "report": str(self.recorder.path)}
        except (KeyboardInterrupt, TrainingStopped) as error:
            say(self._how_to_go_on(error))
            raise typer.Exit(self.stop.exit_code) from None
        if self.as_json:
            print_json(figures)
            return
        figures["learning"] = {name: in_options(words) for name, words in figures["learning"].items()}
        screen = console()
        show_training(figures, screen)
        if (test := figures.get("test")) is not None:
            found = {name: value for name, value in test.items() if name != "rows" and value is not None}
            words = metric_words(found) or "nothing to measure"  # one label has no AUC
            screen.print(f"test: {words} on {test['rows']:,} rows", highlight=False, markup=False)
        screen.print(f"report: {figures['report']}", highlight=False, markup=False, soft_wrap=True)

    def _how_to_go_on(self, error: BaseException) -> str:
        from penstock.jobs.run_folder import RunFolder

        folder = RunFolder(self.output)
        if not folder.is_run():
            return "stopped; nothing was written"
        steps = sorted(folder.checkpoints.glob("step-*"))
        kept = f"the checkpoint of step {int(steps[-1].name[5:]):,} is kept" if steps else "there is no checkpoint yet"
        # TrainingStopped says where; a second Ctrl-C says nothing.
        return f"{str(error) or f'stopped; {kept}'}; go on with: penstock train --resume --output {self.output}"
