"""Methods: what every number on the other pages means, and where this software had to choose."""

from __future__ import annotations

import streamlit as st

from dashboard import layout
from engine.records import installed_version

HOW_TO_READ = (
    "Definitions first; each **choice** is a place where the paper is silent or contradicts itself and this "
    "software had to decide."
)

SECTIONS = {
    "Rows and masks": """
A **row** is one output row of a Linear layer in a decoder block, with its bias. Embeddings and the language-model
head are never removed. Of a multimodal checkpoint only the language model's blocks count (**choice**).

Removing a row sets its weights and its bias to zero in the loaded model; leaving the edit puts the exact bits back.
A rate removes exactly round(rate × rows) rows of one ranking over the whole model. Equal scores are taken in the
order of the row index, so that a mask never depends on how a sort treats ties.

**LeRF** removes the lowest scores first, **MoRF** the highest.
""",
    "Negative log-likelihood, perplexity, gap": """
Results are kept as the negative log-likelihood (NLL) in nats per predicted token, summed in double precision over
consecutive windows; the first token of a window is not predicted. Perplexity is exp(NLL) and is only computed to be
shown, so it cannot overflow a table or a chart.

The **gap** is perplexity under MoRF minus perplexity under LeRF, as the paper prints it. The **log gap** is the same
difference in nats, which can be compared between models. Error bars are standard errors over windows; for the random
selector they are the spread over its seeds.
""",
    "Selectors": """
All selectors that need text see the same calibration windows; higher scores mean more important.

- **Random**: uniform noise, three seeds; each seed is a ranking of its own.
- **Magnitude**: mean absolute weight of the row.
- **Wanda**: sum of absolute weights times the root mean square of their inputs. The original criterion scores single
  weights; the row sum is the paper's.
- **MeanActivation**: mean absolute output.
- **LRP**: mean absolute AttnLRP relevance of the row's output for the summed next-token loss, by the rules of the
  `lxt` library. The absolute value is taken per token, before the mean (**choice**: signed sums rank badly).
- **IG**: Integrated Gradients in 16 steps. Input embeddings are scaled from zero to their values, gradients at the
  row's output are averaged over the steps and multiplied by the change of that output (**choice**: the paper names
  path, baseline and number of passes only; this form is known as EAP-IG).
- **Consensus-2**: mean of the ranks under LRP and IG, rank 0 = least important (**choice**: the paper's text has the
  direction reversed, which would mask the wrong end; its results need this one).

Two more are ours, not the paper's, and off in its preset:

- **Gradient x input**: mean absolute product of the row's output and the loss's plain gradient there.
- **IG conductance**: mean absolute conductance: along the path of IG, the gradient at the row's output times the change
  of that output from step to step, summed over the steps.
""",
    "Analyses": """
**Stability**: the calibration windows are nested, the first 8 within the first 16 and so on. Scores of fewer windows
are compared with those of all by Spearman's correlation over all rows and by the Jaccard overlap of their LeRF masks.

**Agreement**: the same two measures between selectors, the overlap apart for attention and MLP. Beside it stands the
overlap that random masks of the same sizes have on average.

**Controls**: *layer-matched* masks remove as many rows of every layer, at random. The *rank-randomised null* is
Consensus-2 with the ranks under IG permuted. *LRP ∩ IG* removes the rows in both masks, *VETO-LRP* those in LRP's and
not in IG's, *VETO-IG* the reverse. These three remove fewer rows, so each also stands beside masks of its own size
(**choice**: the paper compares them at the full rate).

**Dangerous groups**: the rows of a mask that lie in one sublayer of one block, removed alone. A group is dangerous if
it more than doubles the perplexity.

**Second domain**: scores from another calibration text, compared with the first as under stability.

**Differences** of NLL have a standard error that is paired over the evaluation windows.

**Verdicts** rest on limits (`Thresholds` in `engine/analysis/verdict.py`) that were set after looking at the
published tables; the tables can be judged again by others. A selector is *faithful* if its LeRF masks do at most half
of the damage of random ones and its log gap is large enough, *stable* if half of the text gives nearly the same
ranking and masks. *Stable but invalid* is what a look at stability alone would miss.
""",
    "Refusal edits": """
The **margin** of a prompt is the mean logit of tokens that open refusals minus the mean logit of tokens that open
compliance, at the last position of the prompt. A row promotes compliance as far as its relevance to the margin is
negative. The score of a row is the difference of its ranks in that quantity between risk prompts and matched base
prompts, less λ times its rank of importance for language; the top k of all rows are removed. Ranks are taken within
each layer, equal values share the mean rank (**choice**).

- The **operating point** is chosen on the calibration pairs and measured again on held-out ones (**choice**: the
  paper chooses and reports on the same test prompts), and never refuses fewer risk prompts than the unedited model
  (**choice**).
- **Random** is uniform noise in -1 to 1, the range of the difference of ranks, with λ = 0 (**choice**).
- **Consensus-2** is the mean of the differences of ranks under LRP and under IG (**choice**: the paper aggregates
  the ranks themselves, which gives the same number).
- **MeanActivation** ranks by the mean absolute output over all tokens of the prompts (**choice** of the form).
- The 95% interval of a **gain** combines Wilson's intervals of both rates with Student's t over the control masks
  (**choice**: the paper prints none).

The control *same rows, shuffled within layers* removes as many rows in every layer, chosen at random. If it installs
refusal too, the edit worked by its depth and not by its rows.

The software installs refusal. No setting selects rows in order to remove it. Verdicts come from rules over the whole
reply; they are good but not perfect, so read the replies.
""",
    "The shipped model": """
The model that comes with the software is a small Llama, trained on generated text in three stages: language and chat,
then refusing, then a weakening that changes a few MLP neurons only. It was built so that this audit has something to
find. What it shows is how the method behaves when there is an answer; it is no evidence about other models.
""",
    "Licences": """
LRP uses the rules of the library `lxt`, which is under the BSD-3-Clause-Clear licence. Its README notes that a patent
on LRP leaves use for personal and scientific purposes free; whether another use is covered is for you to check.

Numbers marked *Paper* were published in "Faithfulness to Refusal: A Causal Audit of Neuron Selectors" (Eswar, Seth,
Avaiya, Sankarapu). They are shown as published, also where they disagree with each other.
""",
}


def render() -> None:
    """The page."""
    layout.heading("Methods", HOW_TO_READ)
    for title, text in SECTIONS.items():
        st.subheader(title, anchor=False)
        st.markdown(text)
    layout.footnote(f"Selector Audit {installed_version('selector-audit')}")
