"""Bash completion for instruction and sample names, which bash splits at colons."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Bash completion that joins words split at colons, and completes the part after the last colon."""

    kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words and the incomplete one."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in (*args, incomplete):
            if words and (words[-1].endswith(":") or (word and not word.strip(":"))):
                words[-1] += word
            else:
                words.append(word)
        self.kept = words[-1].removesuffix(incomplete.lstrip(":"))
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return the replacement for the text after the last colon."""
        return f"{item.type},{item.value.removeprefix(self.kept)}"
