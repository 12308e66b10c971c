"""The commands in the order of `selector-audit --help`, and what it says of each. A command's module has its name
(`engine.commands.NAME`) and is loaded when it is asked for."""

COMMANDS = {
    "dashboard": "open the browser app on the shipped results and any store",
    "rows": "count blocks, layers and the rows of each projection",
    "score": "score every row with the chosen selectors",
    "mask": "write the row ids that one selector removes at one rate",
    "sweep": "remove more and more rows, least or most relevant first, and measure perplexity",
    "analyze": "is a selector faithful and stable, does it agree with others? writes a verdict per selector",
    "merge": "join the stores of shards into one",
    "compare": "a finished run of one of the paper's models beside the published tables, "
    "or several runs: do their selectors stand in the same order?",
    "report": "one HTML file with protocol, verdicts, figures, numbers and provenance",
    "site": "a folder of static files that shows results and edits the shipped model in the browser, without a server",
    "replay": "measure the tables of a results folder again: do its numbers hold?",
    "push": "upload a finished run to the Hugging Face hub as a data set",
    "refusal": "install refusal by removing rows, measure it, talk to the result",
    "export": "write the masked model as a checkpoint that transformers loads unchanged",
    "doctor": "check this machine: packages, device, memory, store, data sets, a model",
    "estimate": "what a run will take: passes, tokens, FLOPs, peak memory and time, before weights are fetched",
    "fetch": "fetch a model and the texts into the local cache, for runs without a network",
}
