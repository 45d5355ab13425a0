"""Completion in bash, which cuts words at colons: names of instructions and of samples have some."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Puts words together again, and offers what goes behind the last cut: bash keeps the rest."""

    kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before, and the word that is not complete."""
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
        """What bash puts in place of the word behind the last cut."""
        return f"{item.type},{item.value.removeprefix(self.kept)}"
