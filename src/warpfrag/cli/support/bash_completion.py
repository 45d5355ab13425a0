"""Completion in bash, which cuts words at colons, although instruction and sample names contain them."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Completion that joins the words which bash cuts at colons, and offers the part after the last cut."""

    kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before, and the word that is not complete."""
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
        """Return the replacement of the word after the last cut."""
        return f"{item.type},{item.value.removeprefix(self.kept)}"
