"""jupyter_kernel_test's suite on the sample kernel specification, which a C server answers.

    python -m unittest kernel_suite

Runs in the environment of requirements.txt, which knows nothing of gpufetch; JUPYTER_PATH leads to
the specification, and PATH to its program.
"""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from jupyter_kernel_test import TIMEOUT, KernelTests
from jupyter_kernel_test.msgspec_v5 import msg_structure_validator, validate_message


class SampleKernelTests(KernelTests):
    """The suite's checks of kernel_info, complete, is_complete and messages.

    Its other checks are of kernels that run code, and are skipped.
    """

    kernel_name = "gray_scott"
    language_name = "gpufetch"
    file_extension = ".txt"
    completion_samples: ClassVar[list[dict[str, Any]]] = [
        {"text": "u", "matches": []},
        {"text": "", "matches": []},
        {"text": "\u00e9\U0001f600", "matches": []},
    ]
    complete_code_samples: ClassVar[list[str]] = ["u", "u.mean()", "for (;;) {", "", "\u00e9"]

    def reply_to(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the content of its reply, which is as Jupyter says."""
        message = self.kc.session.msg(f"{kind}_request", content)
        self.kc.shell_channel.send(message)
        reply = self.get_non_kernel_info_reply(timeout=TIMEOUT)
        assert reply is not None
        validate_message(reply, f"{kind}_reply", message["header"]["msg_id"])
        return dict(reply["content"])

    def test_code_is_answered_by_well_formed_messages_and_not_run(self) -> None:
        self.flush_channels()
        for number, code in enumerate(("u.mean()", "1/0", "\u00e9"), 1):
            reply, outputs = self.execute_helper(code)
            assert reply["content"]["status"] == "ok"
            assert reply["content"]["execution_count"] == number
            assert [message["msg_type"] for message in outputs] == ["stream"]
            assert "It runs no code" in outputs[0]["content"]["text"]
        reply, outputs = self.execute_helper("u", silent=True)
        assert (reply["content"]["status"], outputs) == ("ok", [])

    def test_the_other_requests_are_answered_by_well_formed_messages(self) -> None:
        self.flush_channels()
        found = self.reply_to("inspect", {"code": "u", "cursor_pos": 1, "detail_level": 0})
        assert found["found"] is False
        access = {"hist_access_type": "tail", "n": 5, "output": False, "raw": True}
        assert self.reply_to("history", access)["history"] == []
        assert self.reply_to("comm_info", {"target_name": "gpufetch"})["comms"] == {}

    def test_a_comm_is_opened_answered_and_closed_by_well_formed_messages(self) -> None:
        self.flush_channels()
        opening = {"comm_id": "suite", "target_name": "gpufetch", "data": {}}
        for kind, content, answers in (
            ("comm_open", opening, ["comm_msg"]),
            ("comm_msg", {"comm_id": "suite", "data": {"op": "list"}}, ["comm_msg"]),
            ("comm_close", {"comm_id": "suite", "data": {}}, []),
            ("comm_msg", {"comm_id": "suite", "data": {"op": "list"}}, ["comm_close"]),
        ):
            message = self.kc.session.msg(kind, content)
            self.kc.shell_channel.send(message)
            kinds, states = [], []
            while states[-1:] != ["idle"]:
                answer = self.kc.get_iopub_msg(timeout=TIMEOUT)
                msg_structure_validator.validate(answer)
                assert answer["parent_header"]["msg_id"] == message["header"]["msg_id"]
                if answer["msg_type"] == "status":
                    validate_message(answer)
                    states.append(answer["content"]["execution_state"])
                else:
                    kinds.append(answer["msg_type"])
            assert (kinds, states) == (answers, ["busy", "idle"])


del KernelTests  # unittest would run it by itself


if __name__ == "__main__":
    unittest.main()
