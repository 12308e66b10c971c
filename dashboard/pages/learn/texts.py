"""The guided path in words: what each step says and asks. `lesson_answers` reads off the figures what is right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lesson:
    """One step. answers: id -> text. id: part of links, never renamed."""

    id: str
    title: str
    text: str
    question: str
    answers: dict[str, str]


ROW = Lesson(
    "row",
    "What is a row?",
    "A language model is mostly a stack of tables of numbers. Each table is a **matrix**: it takes a list of numbers "
    "in and gives another list out. One **row** of the table makes exactly one number of the output: multiply the "
    "inputs with the row's numbers, one by one, and add everything up. This program asks of every single row how much "
    "the model needs it, and the test is to set the row to zero.\n\n"
    "Once you have guessed, a real matrix of the shipped model appears. Choose a row there, then zero it.",
    "A row is set to zero. What changes in the output of this matrix?",
    {
        "a": "Exactly one output number changes: it becomes zero, whatever comes in.",
        "b": "The matrix no longer sees one of its inputs, so every output changes a little.",
        "c": "All outputs become zero.",
    },
)
ZERO = Lesson(
    "zero",
    "Zero some and watch",
    "How good a language model is can be read off its **perplexity**: roughly, between how many equally likely next "
    "words it wavers. 1 would be perfect; higher is worse. We zero rows drawn by lot, more and more of them, and "
    "measure the perplexity on a text that the model has not seen.\n\n"
    "Once you have guessed, every row of the shipped model appears as a pixel: press **Play** and watch.",
    "Three in ten rows, drawn by lot, are zeroed. How does the perplexity change?",
    {
        "a": "It stays below twice its value.",
        "b": "It becomes two to five times as high.",
        "c": "It becomes more than five times as high.",
    },
)
ORDERS = Lesson(
    "orders",
    "Two ways to cut: LeRF and MoRF",
    "A **selector** gives every row a score: how important does it think the row is? That is a claim, and a claim can "
    "be tested from both ends. **LeRF** (least relevant first) zeroes the rows with the lowest scores: if the selector "
    "is right, little should happen. **MoRF** (most relevant first) zeroes those with the highest: if it is right, the "
    "model should break. The distance between the two curves says how much the ranking is worth. It is called the "
    "**gap**.",
    "One row in ten is zeroed, once by LeRF and once by MoRF. What does the selector chosen above the figure show (at "
    "first LRP)?",
    {
        "a": "MoRF does much more harm than LeRF: the ranking tells important rows from unimportant ones.",
        "b": "Both do about the same harm: the ranking is no better than drawing lots.",
        "c": "LeRF does more harm than MoRF: the ranking stands on its head.",
    },
)
STABILITY = Lesson(
    "stability",
    "Stable is not the same as right",
    "Most selectors look at some text before they score the rows. Give them another sample of text: does the ranking "
    "stay the same? If so, it is **stable**. That is good to have, and easy to measure, so one may be tempted to take "
    "it for proof. A clock that stands still is perfectly stable too.\n\n"
    "In the figure, to the right: rankings that hardly depend on how much text was read. Upwards: a large gap between "
    "MoRF and LeRF, that is, a ranking that passed the test of the last step.",
    "Can a ranking be stable and yet fail the test?",
    {
        "a": "No: here every stable ranking also has a large gap.",
        "b": "Yes: here at least one stable ranking has a gap less than half as large as the best one's.",
    },
)
INSTALL = Lesson(
    "install",
    "Install a behaviour",
    "Scores can also say which rows **hold a behaviour back**. The shipped model was trained to answer some risky "
    "requests that it should rather refuse. We look for rows that push towards answering such requests (but that the "
    "language does not need) and zero a few percent of them. No training, no new weights: rows are only switched "
    "off.\n\n"
    "Two kinds of prompts are watched: risky ones, and harmless ones that look much like them. (The requests are "
    "made up, and so is the world they speak about.)",
    "The rows are zeroed. Which prompts does the model refuse now?",
    {
        "a": "Both kinds: it refuses at least half of the risky and at least half of the harmless prompts.",
        "b": "It refuses at least half of the risky prompts, and at most one in five harmless ones.",
        "c": "It still refuses less than half of the risky prompts.",
    },
)
CONTROL = Lesson(
    "control",
    "The control that must fail",
    "Maybe it does not matter which rows are zeroed: any damage of this size might make the model refuse. So we need a "
    "**control**: from every matrix just as many rows are zeroed as before, but drawn by lot. If the edit found the "
    "right rows, the control must fail. A result without such a control says little.",
    "How much of the edit's effect do the random rows have, on average over three draws?",
    {
        "a": "Less than a quarter of it: it does matter which rows are zeroed.",
        "b": "A quarter to three quarters of it: partly it is the damage alone.",
        "c": "More than three quarters of it: any rows would do.",
    },
)
LESSONS = (ROW, ZERO, ORDERS, STABILITY, INSTALL, CONTROL)
