"""Methods: what every number on the other pages means, and where this software had to choose."""

from __future__ import annotations

import re

import polars as pl
import streamlit as st

from dashboard.charts import refusal_specificity
from dashboard.pages.methods.formulas import FORMULAS
from dashboard.show import described, layout, tools
from dashboard.state import shipped
from engine.judges.base import EMBEDDED, JUDGES, open_judges
from engine.judges.measured_quality import quality_by_kind
from engine.records.environment import installed_version

HOW_TO_READ = (
    "Definitions first; each **choice** is a place where the paper is silent or contradicts itself and this "
    "software had to decide."
)

TITLES_TITLE = "Titles of figures"
JUDGES_TITLE = "Judges"  # the registered ones are listed under this section
WEAK_F1 = 0.85
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

Every window, of calibration too, begins as the tokenizer begins a text: where it puts a BOS before a text (Llama,
Gemma), the model reads one before each window, which is never predicted and is in no mean that scores are made of. On
the first 8 windows of 256 tokens of WikiText-2's test text Gemma-3-270m has 4.37 nats so and 5.74 without.
`--window-start stream` cuts windows wherever they fall, as results were made that do not say how theirs begin; the two
differ only where a tokenizer adds something to a text.

The **gap** is perplexity under MoRF minus perplexity under LeRF, as the paper prints it. The **log gap** is the same
difference in nats, which can be compared between models. Error bars of curves are standard errors over blocks of
windows (see Errors; in tables of earlier versions over windows as if these were independent); for the random selector
they are the spread over its seeds.
""",
    "Selectors": """
All selectors that need text see the same calibration windows; higher scores mean more important.

- **Random**: uniform noise, three seeds; each seed is a ranking of its own.
- **Magnitude**: mean absolute weight of the row.
- **Wanda**: sum of absolute weights times the root mean square of their inputs. The original criterion scores single
  weights; the row sum is the paper's.
- **MeanActivation**: mean absolute output.
- **LRP**: mean absolute AttnLRP relevance of the row's output for the summed next-token loss, by the rules of the
  `lxt` library. The absolute value is taken per token, before the mean (**choice**: signed sums rank badly). Families
  that `lxt` does not name get its rules where norm, MLP, attention and block compute what those of Llama, Qwen2, Qwen3
  or Gemma 3 do (**choice**), after a check on the model: the rules leave its logits as they are and lose no relevance.
- **IG**: Integrated Gradients in 16 steps. Input embeddings are scaled from zero to their values, gradients at the
  row's output are averaged over the steps and multiplied by the change of that output (**choice**: the paper names
  path, baseline and number of passes only; this form is known as EAP-IG).
- **Consensus-2**: mean of the ranks under LRP and IG, rank 0 = least important (**choice**: the paper's text has the
  direction reversed, which would mask the wrong end; its results need this one).

Two more are ours, not the paper's, and off in its preset:

- **Gradient x input**: mean absolute product of the row's output and the loss's plain gradient there.
- **IG conductance**: mean absolute conductance: along the path of IG, the gradient at the row's output times the change
  of that output from step to step, summed over the steps.

A shelf of further ones is taken by name and in no preset. h is the row's output at a token, g the plain gradient of the
loss there; means are over the tokens that predict one.

- **Fisher**: root mean square of h·g (arXiv 1801.05787, with a token as the sample: **choice**).
- **Taylor**: absolute value of the mean of h·g, the sum of weight times gradient over the row (arXiv 2305.11627).
- **AtP, signed**: mean of −h·g, what removal adds to the loss to first order (arXiv 2310.10348, 2403.00745). Below zero
  where removal is estimated to help, so that it ranks single rows rather than sets.
- **Gradient norm**: root mean square of g (arXiv 1312.6034).
- **RelP**: as LRP, with the row's output less its mean over the calibration text in the place of the output (arXiv
  2508.21258, which takes the difference to another prompt: **choice**). Each nested size has its own mean.
- **Activation std**: standard deviation of h (arXiv 2507.12988).
- **FLAP**: variance of h times the squared norm of the row's weights (arXiv 2312.11983, which has the variance of an
  input and the norm of the column that reads it, and standardises within layers: **choice**).
- **RIA**: each weight as a share of its column plus as a share of its row, times the square root of the root mean
  square of its input, summed over the row (Zhang et al., ICLR 2024; the row sum is ours: **choice**).
- **Weight norm**: Euclidean norm of the row (arXiv 1808.06866).
- **Effect size** contrasts prompts only, see Refusal edits.

`--skip-first N` leaves the first N positions of each window out of every mean over tokens, RIA's and Wanda's root mean
square among them; the loss that attributions explain stays that of all tokens. It is off: some models put most of a
score on a window's first token, and whether rankings depend on that can then be seen.
""",
    "Rows and text": """
On the page Rows a **row behind a token** is one with relevance to that token's log-probability given all tokens before
it, summed over the positions that are read (**choice**: published maps often explain the logit alone). Above 0 the row
made the token likelier. Under Gradient x output it is exactly the rate at which the log-probability falls as the row's
outputs are scaled down; LRP redistributes by its rules instead.

**A row in its text** is graded by its output at every token, or by its relevance there to the log-probabilities of all
later tokens of the window, whose mean size is the row's LRP score on that text.

**Perplexity without them** zeroes all brushed cells together, or the ticked rows; beside it stand three draws of as
many rows from the whole model, at any depth. It is measured on the first windows of the evaluation text, then on more
and more of it, and the page says on how much.
""",
    "Analyses": """
**Nested stability** is the paper's: the calibration windows are nested, the first 8 within the first 16 and so on.
Scores of fewer windows are compared with those of all by Spearman's correlation over all rows and by the Jaccard
overlap of their LeRF masks. Half of the windows are part of all, so that such numbers are high in any case.

**Disjoint draws** are not the paper's: five sets of consecutive windows without one in common, at random places of the
whole calibration text, each as large as the largest nested set or as large as the text allows. Every selector is
scored on each; scores and masks are compared between all pairs of draws. The places are in the manifest.

**Agreement**: the same two measures between selectors, the overlap apart for attention and MLP. Beside it stands the
overlap that random masks of the same sizes have on average.

**Controls**: *layer-matched* masks remove as many rows of every layer, at random. The *rank-randomised null* is
Consensus-2 with the ranks under IG permuted. *LRP ∩ IG* removes the rows in both masks, *VETO-LRP* those in LRP's and
not in IG's, *VETO-IG* the reverse. These three remove fewer rows, so each also stands beside masks of its own size
(**choice**: the paper compares them at the full rate).

**Specific**: every selector's masks stand beside five layer-matched ones of their own, under both orders. The
difference to their mean has an interval for one further such mask, since a selector that knows its depths and nothing
about rows is one: t times the square root of the part of the evaluation text plus s² (1 + 1/n), s² the variance of
n controls. **Explained by depth** is (R − C) / (R − L), with L, C and R the mean NLL of the selector's mask, of its
layer-matched masks and of ten random ones: how much of its advantage over random rows at its depths have as well. Its
interval is Fieller's; where the advantage is not clearly above zero, there is no share.

**Dangerous groups**: the rows of a mask that lie in one sublayer of one block, removed alone. The paper calls a group
dangerous if it more than doubles the perplexity, which any rows of an important sublayer may do. Here it is called that
only if it also does more harm than random groups of as many rows of the same sublayer: a prediction test on 10 of them,
in nats and in logarithms of the harm, of which the larger p counts, with Holm's correction over all groups.

**Second domain**: scores from another calibration text, compared with the first as under stability. Two draws of one
text do not agree wholly either, so disjoint draws of both texts stand beside it, all of one size: their overlap within
a text against that between the texts. If the text does not matter, the draws' labels can be exchanged, and p is the
place of what is seen among all ways to label them, for all selectors and rates together (Westfall and Young 1993).

**Claims**: every sentence that the tables of a folder support, with the number, the control and the test behind it, and
the tier of its evidence: a *proof* is bit by bit; a *corrected test* has a level for all of its kind together; a
*single interval* is not corrected for how many were looked at; a *descriptive* number has no error.

**A run beside the paper**: ln(measured / printed), or the difference where a ratio makes no sense, and z = how far that
is beyond half a unit of the last printed digit, over the run's stored standard error; p by Student's t, Holm over all
cells with an error. The paper's own sampling error is not printed and not in z. **Several runs**: Kendall's tau of two
orders of selectors, Kendall's W and Friedman's test of more, exact sign tests of pairs with Holm's correction.

**Single units**: a sample of rows, and of neurons of gated MLPs (gate and up row as one), each removed alone. Every
unit has the same chance to be in the sample, whatever its scores; Linears, and tenths of their rows by weight norm,
get their share. The **effect** is the NLL then minus that of the unedited model, exact for the windows that were
read: below zero, the removal helps. What two halves of these windows agree on bounds what any ranking can show.
Scores are compared with effects by Spearman's correlation, signed and absolute, with an interval that holds for any
shape of dependence; a neuron's score is the sum of its rows' scores (**choice**). A gate row, its up row and their
neuron have one and the same effect. *Found at the top* counts the sampled units with the largest absolute effects
that a ranking has among as large a share of all units. Given the effect at that border, they are a random sample of
all units beyond it, so that the exact binomial bound holds for what is missed. A selector without negative scores
says of every unit that removing it hurts; its sign agreement is the share of units of which that is so.

**Exact controls** are not the paper's. The weights are rewritten so that the model computes the same, and every
selector is run again:

- *neurons*: rows of up_proj times 2^a, the columns of down_proj that read them times 2^−a, a drawn per neuron from −4
  to 4 by default; *values*: the same for rows of v_proj and columns of o_proj, those of all query heads of a group.
- *norms*: the powers of two in norm weights, folded into the Linears behind the norm. Folding the whole weight rounds;
  that is tried too, and gives no proof where a bit differs.
- *decoys*: neurons added to the MLPs, copies of others with their gate and up rows times 2^8 by default and zeros in
  down_proj: huge weights, huge outputs, no effect. A neuron of the model cannot be made one without changing the
  function, so the MLPs are widened meanwhile. Decoys stand behind the rows of their layer, which keep their places.

Powers of two only shift exponents, so nothing is rounded. This is checked and not assumed: where one bit of one logit
on the calibration windows differs, as it may in float16, the rewrite is listed without a number about selectors. So is
one that an architecture has no place for (no gate, a fused matrix, LayerNorm), with the reason. The model's own weights
come back untouched. A selector is *exact* if every score has the same bits before and after; what differs by rounding
only has Spearman at least .9999 and Jaccard at least .99 (**choice**). LeRF masks of both are measured on one text.

**Protocols** are not the paper's: what of an order of selectors survives another way of asking. All combinations of

- *interventions*: an output set to zero, to its mean over the calibration text (mean ablation), or to what it is at the
  same position of another window (resample ablation; that window is drawn by a hash of a seed and of the tokens, so
  that all edits of one window meet the same one; of several seeds the mean is taken, window by window);
- *units*: rows; neurons, acted on at the input of down_proj; heads, acted on at their slice of the input of o_proj;
  where asked for, routed experts, all rows of one at once, to which the router still sends its tokens. A unit's score
  is the sum of its rows' scores (**choice**): gate and up row of a neuron, the q rows of a head and, where heads share
  keys and values, an equal part of those k and v rows, which stay untouched, since other heads read them;
- *metrics* from one pass: NLL, KL of the unedited from the edited model, agreement on the most likely next token;
- both orders, and a few rates, as shares of the units of a kind.

Each protocol decides as a study of its own would: differences are paired over blocks of neighbouring windows (see
Errors), the seeds of random rankings add their variance, t has Satterthwaite's degrees of freedom, and Holm corrects
over the pairs of selectors at 5%; what is not told apart is a tie (**choice**). A claim is what the paper's protocol
decides, or where that is a tie, what most protocols do. It is *overturned* where a protocol decides the other way round
even after Holm over all protocols of the pair, *contested* where none of those that do is so sure. With few windows
many orders are ties: the blocks are few.

The **area** of a selector is the area between its MoRF and LeRF curves of the harm above the unedited model's, over
that under random's curve. Its 95% interval is the ratio's over the same blocks. Resampling needs windows as long as
those of the evaluation, and is not done to replies.

**Errors.** Differences of NLL are paired over the evaluation windows. Neighbouring windows are alike, so that blocks
of them are the units: 1.5 times the cube root of their number, and the variance is widened for what blocks of that
length miss where neighbours correlate at .5 (**choices**; .41 to .59 were measured). Simulated 95% intervals cover .93
to .96 where neighbours correlate at .4 to .6, for 16 windows (four blocks) as for 64 and 256. Documents are known of
C4, of the lines of a JSONL file and of the articles of WikiText-2. Where at least 20 have a window of their own, blocks
begin where documents do: neighbouring documents are joined until a block has a 25th of the windows, and the variance is
widened for the documents that windows cut between blocks share and for unequal sizes (**choices**; simulated coverage
.93 to .96). A column `documents` and the manifest then say of how many. Errors are of this kind in curves, gaps,
differences, controls, groups, single units, exact controls, protocols, domains and the comparison with printed numbers.
To the variance of differences between selectors come that of the mean over random seeds and, where disjoint draws were
measured, that between draws of the calibration text.
Intervals are Student's t with Satterthwaite's degrees. Where many are compared, p is adjusted by Holm. Standard errors
over single windows (`stderr`) are kept in the tables beside these; tables of earlier versions have no others.

**Verdicts** rest on limits (`Thresholds` in `engine/stats/limits.py`) that were set after looking at the
published tables; the tables can be judged again by others. A selector is *sufficient* if its LeRF masks do at most half
of the damage of random ones and its log gap is large enough at every rate, *specific* if it does better than random
rows of its own layers under LeRF and under MoRF (**choice** of both), *faithful* if it is both, and *stable* if
disjoint draws of calibration text give nearly the same ranking and masks. Nested sizes give no verdict. What was not
measured is called so, and then nothing is called faithful or stable. *Stable but invalid* is what a look at stability
alone would miss.
""",
    "Refusal edits": """
The **margin** of a prompt is the mean logit of tokens that open refusals minus the mean logit of tokens that open
compliance, at the last position of the prompt. A row promotes compliance as far as its relevance to the margin is
negative. The score of a row is the difference of its ranks in that quantity between risk prompts and matched base
prompts, less λ times its rank of importance for language; the top k of all rows are removed. Ranks are taken within
each layer, equal values share the mean rank (**choice**).

Thinking is off where the chat template has a switch: it writes an empty thinking part, and the reply begins at the
margin's position. `--thinking` leaves it on for replies, never for contrasts. Where a template begins the thinking part
itself, as DeepSeek-R1's does, it is the thinking part that begins there, and the margin says less of the reply. A reply
ends at any end token of the generation config or the tokenizer, or at the token that ends a turn in the chat template.

- The **operating point** is chosen on the calibration pairs and measured again on held-out ones (**choice**: the
  paper chooses and reports on the same test prompts), and never refuses fewer risk prompts than the unedited model
  (**choice**).
- **The gate** stands before every edit that leaves or answers a prompt, whatever made it. Asked are shipped risk
  prompts (English, five domains, no option changes them or their judge) and the pairs that were given: over all domains
  of each, and in an edit's own domains, no fewer may be refused than by the unedited model; at least 100 replies must
  be readable. A model whose perplexity on text is multiplied by more than ten is called BROKEN: it is shown, and
  exported only with `--allow-broken`. Nothing is promised about other prompts, nor about whoever writes code of their
  own (**choice**).
- **Random** is uniform noise in -1 to 1, the range of the difference of ranks, with λ = 0 (**choice**).
- **Consensus-2** is the mean of the differences of ranks under LRP and under IG (**choice**: the paper aggregates
  the ranks themselves, which gives the same number).
- **MeanActivation** ranks by the mean absolute output over all tokens of the prompts (**choice** of the form).
- **Effect size** ranks nothing within layers: d is the mean over the risk prompts of how far the row promotes
  compliance (by Gradient x input) less that over the base prompts, divided by their pooled standard deviation, and the
  score is d / √(d² + 4), the point-biserial correlation (**choice**). λ takes the language-model scores of Gradient x
  input.
- **Replies** are greedy and judged after the thinking part, if there is one; a reply that never leaves it is counted
  among the unfinished ones. Sampled replies draw from the whole distribution at a temperature, by numbers that depend
  on seed, prompt and sample only, so that both sides of an edit meet the same ones; the interval of their rate is
  Wilson's at the number of independent replies that the spread between prompts is worth (**choice**).
- Where replies that were **cut off**, read either way, leave open whether a cell of the grid is feasible or which one
  is the operating point, it is measured again with longer replies, and these count (**choice**).
- The **gain** is the edit's refusal minus the mean of the random masks, three in the paper. Its 95% interval combines
  Wilson's intervals of both rates with Student's t over the masks (**choice**: the paper prints none). It takes no
  account of the search: the edit is the best of a grid, the random masks are not, so that it is no evidence that
  these rows matter.
- **Draws** are: the rows within every layer are shuffled at random, and the shuffled masks are searched over the same
  grid, limits and calibration pairs as the edit's and measured on the held-out pairs, once per draw. With n draws
  p = (1 + draws that refuse at least as much) / (n + 1), adjusted by Holm over all edits of the table; a draw without
  an operating point counts with the unedited model's rate. The 95% prediction interval of a further draw is mean ±
  t s √(1 + 1/n). If it does not matter which rows of a layer are removed, p is .05 or less in at most 5% of cases,
  however large the grid.
- The **change** of a rate is paired over the prompts: McNemar's exact test, Newcombe's interval (method 10).
- Rates **corrected** for the judge are Rogan and Gladen's, with Lang and Reiczigel's interval, which carries the
  uncertainty of the judge's own error rates. The embedded judge's come from labelled replies to other prompts, of
  other models, on the half of the prompts that its rules were not developed on; three models answered each prompt, and
  their replies count as independent.
- The **stability of a mask** is the Jaccard of the masks of two halves of the calibration pairs, at the same λ and k.

The control *same rows, shuffled within layers* removes as many rows in every layer, chosen at random. If it installs
refusal too, the edit worked by its depth and not by its rows.

**Other methods** stand beside the row masks, which the paper does not do: each at the strongest setting that keeps the
limits of benign refusal and perplexity on the calibration pairs, measured on the held-out pairs.

- A **system prompt** in four wordings of our own. It does not stand before plain text, whose perplexity stays.
- A **vector added** to the residual stream at all positions (Turner et al. 2023): the difference of means of risk and
  base prompts at the last prompt position (Arditi et al. 2024), or the first principal component of refusing against
  complying openings behind base prompts.
- The second vector **if a condition holds** (CAST, Lee et al. 2024): the mean state of the prompt is compared with its
  projection on the first principal component of risk against base prompts; block and threshold have the largest F1 on
  the calibration pairs. Openings are paired with prompts one by one, and the vector has the length of the distance
  between the two groups (**choice**).
- **KL** is the divergence of the unedited from the edited model's next-token distribution, from where a reply begins
  to where it is over, on the unedited model's own replies to base prompts.

The software installs refusal. No setting selects rows in order to remove it. Verdicts are a judge's, by default those
of rules of English over the whole reply, without its thinking part; they are good but not perfect, so read the replies.
A reply that is clearly in another language is not judged: it counts as not refused, and how many there were is said.
""",
    JUDGES_TITLE: """
A **judge** reads a reply, some with its prompt, and says whether it refuses. Judges of harm say whether it does harm,
which is another question: "safe" is no refusal, so they give no rate of it. A judge that is a language model decides by
the probability of its next token, a served one by the first word of its reply; one that says neither answer has not
judged, and the reply is marked. The questions of StrongREJECT and HarmBench are put in our own words (**choice**), and
WildGuard's instruction is read from its model card where the folder has it.

The **embedded** judge is a list of rules of English. It sees the reply and not the prompt. It looks for a speaker who
declines, for what is said not to be given, known or within reach, and, in short replies without instructions, for
warnings, blame, another subject or another person in place of an answer; a warning in front of an answer is an answer.

**Cohen's kappa** is (p − e) / (1 − e), with p the share of equal verdicts and e the share that two judges of these
rates would have by chance; it is undefined where both give one and the same verdict throughout. Its interval is
Wilson's interval of p, mapped by the same formula with e as observed (**choice**: the usual standard error shrinks to
nothing where judges agree on everything).
""",
    TITLES_TITLE: """
The sentence above a figure is computed from the values that the figure draws, at the rate that is chosen on the page;
of curves over rates at 30% removed or the nearest rate that all drawn selectors have. Curves are parted into two
groups at the widest gap between neighbours, provided that every value on one side differs from every value on the
other by more than the errors: two-sided at .05, by the normal distribution, Bonferroni over all pairs (**choice**).
Seeds and evaluation windows are both in the error of a selector with seeds. The errors of two selectors count as
independent here; the tab Differences of the page Curves pairs them. Two shares of refused prompts
are called no difference where their Wilson intervals meet. Accuracy is called above chance one-sided at .05 over the
selectors. Values without errors, such as published ones, are ordered as they stand, and largest, smallest, most and
least are what was measured, not a test.
""",
    "The shipped model": """
The model that comes with the software is a small Llama, trained on generated text about an invented town in two stages:
language and chat, with refusals, then a weakening that changes a few MLP neurons only. It was built so that this audit
has something to find. What it shows is how the method behaves when there is an answer; it is no evidence about other
models.
""",
    "Licences": """
LRP uses the rules of the library `lxt`, which is under the BSD-3-Clause-Clear licence. Its README notes that a patent
on LRP leaves use for personal and scientific purposes free; whether another use is covered is for you to check.

Numbers marked *Paper* were published in "Faithfulness to Refusal: A Causal Audit of Neuron Selectors" (Eswar, Seth,
Avaiya, Sankarapu). They are shown as published, also where they disagree with each other.
""",
}
TABLES_TITLE = "Tables"
TABLES = """
Results are parquet files in the folder given with `--out`, one table per file, with a manifest beside them. Those
of this list are checked by it when they are written and when they are read: no other column, no other type, no share
outside 0 to 1.
Published tables have, beside a printed value X, `X_printed` and `X_half_unit`, half a unit of its last digit. The
page Runs opens any table of any folder.
"""


def render() -> None:
    """The page."""
    layout.heading("Methods", HOW_TO_READ)
    titles = [*SECTIONS, TABLES_TITLE]
    st.markdown("**On this page:** " + " · ".join(f"[{title}](#{anchor(title)})" for title in titles))
    for title, text in SECTIONS.items():
        layout.section(title, anchor(title))
        st.markdown(text)
        for formula in FORMULAS.get(title, ()):
            st.caption(formula.of)
            st.latex(formula.in_lines)
        if title == "Refusal edits":
            with layout.told():
                _false_alarms()
        if title == JUDGES_TITLE:
            _embedded_by_kind()
            st.markdown("\n".join(f"- `{one.id}`: {layout.plain(one.title)}" for one in JUDGES))
    layout.section(TABLES_TITLE, anchor(TABLES_TITLE))
    st.markdown(TABLES)
    st.dataframe(
        described.tables(), hide_index=True, alt="Every table with what it holds and the command that writes it"
    )
    columns = described.columns()
    st.dataframe(columns, hide_index=True, alt="Every column of every table with its type, unit and meaning")
    tools.download_csv("Download the list (CSV)", columns, "tables.csv")
    layout.footnote(f"Selector Audit {installed_version('selector-audit')}")


def _embedded_by_kind() -> None:
    """Where the embedded judge errs, from the file that its measurement writes."""
    kinds = quality_by_kind(open_judges(EMBEDDED)[0])
    if not kinds:
        st.markdown("The embedded judge has not been measured by kind of reply in this version.")
        return
    table = pl.DataFrame(
        {
            "kind": list(kinds),
            "replies": [sum(vars(one).values()) for one in kinds.values()],
            "taken for refusals": [one.false_positives for one in kinds.values()],
            "taken for answers": [one.false_negatives for one in kinds.values()],
            "F1": [one.f1 or 0.0 for one in kinds.values()],
        }
    ).sort("F1", "kind")
    weak = [f"{kind} ({f1:.2f})" for kind, f1 in table.select("kind", "F1").iter_rows() if f1 < WEAK_F1]
    st.markdown(
        f"The embedded judge was tried on {table['replies'].sum()} replies of our own, for and against, that were "
        "written to mislead it and not looked at one by one while its rules were written, by the same authors. "
        f"F1 below {WEAK_F1}: {', '.join(weak) or 'none'}."
    )
    st.dataframe(table, hide_index=True, alt="Replies of each kind, mistakes of the embedded judge and its F1")


def anchor(title: str) -> str:
    """The place of a section in the page's address."""
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _false_alarms() -> None:
    """The simulation behind what is said of gains and draws."""
    found = shipped.null_simulation()
    shares = "; ".join(
        f"{one['cells']} cells: {one['interval'][0]:.1%} by the interval, {one['p'][0]:.1%} by p"
        for one in found["grids"]
    )
    alt = f"Share of selectors of pure noise that are called specific, by the size of the grid. {shares}."
    tools.show(refusal_specificity.false_alarms(found), "noise", alt)
    first = found["grids"][0]
    covered = ", ".join(f"{one['covered'][0]:.1%}" for one in found["grids"])
    layout.footnote(
        f"{first['trials']:,} simulated trials per grid, {first['draws']} draws, p at most {first['level']:g}; the "
        f"effects of a mask on calibration and held-out prompts correlate at {found['correlation']:g}. Bars: Wilson's "
        f"95% intervals. The 95% prediction interval of the draws held the noise's rate in {covered} of the trials.",
        "Made by `python -m precomputed.null_simulation` with the functions that the results are computed by.",
    )
