"""Calls that a rehearsal leaves out, and calls that it notices. Its results are not real, so none is sent to Hugging
Face's hub or to a server of MLflow's. The tool switches trackers off that have a switch in the environment
(rehearse/trackers.def)."""
from __future__ import annotations

import functools
import os
import sys

from . import _hook

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any, Callable

# Calls that change something at the hub. Everything else that does so is made of these.
SENDERS = ("create_repo", "create_commit", "upload_file", "upload_folder", "upload_large_folder", "preupload_lfs_files", "create_branch",
           "create_tag", "delete_repo", "delete_branch", "delete_tag", "move_repo", "update_repo_settings",
           "super_squash_history")

_said: set[str] = set()


def _say(what: str) -> None:
    if what not in _said:
        _said.add(what)
        sys.stderr.write(f"segalloc rehearse: {what}; --trackers lets it\n")


def _instead(name: str, hub: Any) -> Callable[..., Any]:
    """A function that sends nothing, and has an answer as the one of that name has."""
    def answer(repo: str) -> Any:
        url = f"https://huggingface.co/{repo}"
        if name == "create_repo":
            return hub.RepoUrl(url) if hasattr(hub, "RepoUrl") else url
        if name in ("create_commit", "upload_file", "upload_folder") and hasattr(hub, "CommitInfo"):
            return hub.CommitInfo(commit_url=f"{url}/commit/{'0' * 40}", commit_message="", commit_description="", oid="0" * 40)
        return None

    def send_nothing(self: Any, *arguments: Any, **named: Any) -> Any:
        _say("nothing is sent to the hub, for the results of a rehearsal are not real")
        repo = named.get("repo_id") or (arguments[0] if arguments and isinstance(arguments[0], str) else "rehearsed/nothing")
        result = answer(repo if "/" in repo else f"rehearsed/{repo}")
        if not named.get("run_as_future"):
            return result
        from concurrent.futures import Future
        future: Future[Any] = Future()
        future.set_result(result)
        return future

    send_nothing.__name__ = name
    return send_nothing


def _leave_hub(hub: Any) -> None:
    for name in SENDERS:
        if not hasattr(hub.HfApi, name):
            continue
        setattr(hub.HfApi, name, _instead(name, hub))
        bound = getattr(hub, name, None)  # the module has methods of one HfApi as functions
        if bound is not None and getattr(bound, "__self__", None) is not None:
            setattr(hub, name, getattr(bound.__self__, name))


def _leave_mlflow(tracking: Any) -> None:
    """A server that the program names is not asked: runs go to the folder in MLFLOW_TRACKING_URI, which is the tool's."""
    def stay(uri: Any, *_: Any, **__: Any) -> None:
        _say("nothing is sent to MLflow's server, for the results of a rehearsal are not real")

    tracking.set_tracking_uri = stay


def _notice_shares(cuda: Any) -> None:
    """A program that reads how much memory the device has in all may size itself by it. PyTorch asks for the properties all the
    time, so what counts is a caller outside of it that reads that one. The library counts questions for free memory."""
    properties = cuda.get_device_properties

    @functools.wraps(properties)
    def get_device_properties(*arguments: Any, **named: Any) -> Any:
        caller = sys._getframe(1)
        module = str(caller.f_globals.get("__name__", ""))
        if "total_memory" in caller.f_code.co_names and module.split(".")[0] != "torch":
            cuda.mem_get_info(*arguments, **named)
        return properties(*arguments, **named)

    cuda.get_device_properties = get_device_properties


def prepare() -> None:
    """To be called before the program's imports. Nothing where this is no rehearsal; trackers stay where they are wanted."""
    if os.environ.get("SEGALLOC_REHEARSAL"):
        _hook.after_import("torch.cuda", _notice_shares)
    if os.environ.get("SEGALLOC_REHEARSAL") == "no-trackers":
        _hook.after_import("huggingface_hub.hf_api", _leave_hub)
        _hook.after_import("mlflow.tracking._tracking_service.utils", _leave_mlflow)
