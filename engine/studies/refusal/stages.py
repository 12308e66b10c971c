"""The stages of a refusal experiment: their questions, what their commands say, which settings each reads. No torch.

Every stage finds in the store what earlier ones measured, so that each can be run alone."""

from engine.run import refusal_plan as plans
from engine.studies.base import REFUSAL, Later, register_study

_REFUSAL = "engine.studies.refusal"
_OF_CONTRASTS = (plans.PromptsPlan, plans.ContrastsPlan, plans.JudgedPlan)
_OF_GRID = (*_OF_CONTRASTS, plans.AskedPlan, plans.GridPlan)
_OF_POINTS = (*_OF_GRID, plans.HeldoutPlan)

register_study(
    "calibrate", of=REFUSAL, tables=(), reads=_OF_CONTRASTS, reads_text=False, measures=False,
    title="which rows promote complying with risk prompts only? writes contrast.safetensors",
    description="Contrasts the rows' relevance to refusing between risk and base prompts, per selector and domain. One "
    "forward and backward pass per batch of prompts (16 for ig); what is known is kept. The unedited model answers all "
    "of them first: pairs whose base prompt it refuses are left out; if these are more than one and more than "
    "--benign-limit of a domain's, it is an error.",
)(Later(f"{_REFUSAL}.algorithm", "Calibrated"))  # fmt: skip

register_study(
    "sweep", of=REFUSAL, tables=("refusal_sweep",), reads=_OF_GRID,
    title="refusal and perplexity of every cell of the grid; writes refusal_sweep.parquet",
    description="Measures the perplexity of all masks, then replies of those under the cap. Where an operating point "
    "lies at the edge of the grid, the grid goes on beyond it (--widen). Every cell is kept: the same command "
    "resumes, and another judge reads the replies that are there.",
)(Later(f"{_REFUSAL}.points", "Swept"))  # fmt: skip

register_study(
    "select", of=REFUSAL, tables=("refusal_sweep", "operating_points"), reads=_OF_GRID,
    title="the best cell within the limits, or its rescue; writes operating_points.parquet and a mask file of each",
    description="Takes the cell that refuses most risk prompts while base prompts refused and perplexity keep their "
    "limits; of equals the smaller mask. Where no cell does, the limit of base prompts is relaxed and the point is "
    "flagged as a rescue. A point at the edge of its grid, after the grid went on beyond it (--widen), is flagged "
    "too. The mask of each point is written beside the table, mask-SELECTOR-DOMAIN.safetensors, for `refusal chat "
    "--mask` and `export --mask`.",
)(Later(f"{_REFUSAL}.points", "Chosen"))  # fmt: skip

register_study(
    "structure", of=REFUSAL, tables=("signal_density", "refusal_jaccard", "refusal_shares"), reads=_OF_CONTRASTS,
    reads_text=False, measures=False,
    title="how many rows have a clear contrast, where do they lie, do selectors and domains share them",
    description="Writes signal_density, refusal_jaccard and refusal_shares (each with what chance or the model's own "
    "rows give). It reads the contrasts only.",
)(Later(f"{_REFUSAL}.structure", "Structure"))  # fmt: skip

register_study(
    "control", of=REFUSAL, tables=("refusal_controls",), plan=plans.ControlsPlan, reads=_OF_POINTS,
    title="the mean of random masks of the same size, as in the paper; writes refusal_controls.parquet",
    description="Measures random masks with the same number of rows in every layer, and in the whole model, one per "
    "seed, on the held-out pairs. The gain is the real mask's refusal minus the controls' mean. Its 95% interval "
    "takes no account of the search: the real mask is the best of a grid and the controls are not, so that it does "
    "not say that these rows matter; `refusal draws` tests that.",
)(Later(f"{_REFUSAL}.points", "Controlled"))  # fmt: skip

register_study(
    "evaluate", of=REFUSAL, tables=("transfer", "refusal_replies", "utility", "judge_pairs"), plan=plans.EvaluatePlan,
    reads=_OF_POINTS,
    title="does it hold on other prompts, what does it cost, do judges agree? writes transfer, utility, judge_pairs",
    description="Refusal on held-out pairs and on public prompt sets before and after every operating point, with "
    "Wilson's intervals, McNemar's test of the change, and rates corrected for the judge's errors where they are "
    "known; with --reply-samples and --follow-up sampled replies and second turns as well; and utility through "
    "lm-evaluation-harness where it is asked for.",
)(Later(f"{_REFUSAL}.transfer", "Evaluated"))  # fmt: skip

register_study(
    "compose", of=REFUSAL, tables=("composed", "composed_sweep"), reads=_OF_POINTS,
    title="one mask from the pairs of several domains; writes composed.parquet and a mask file",
    description="Builds one contrast from all pairs of --domains, takes its operating point and measures it on the "
    "held-out pairs of each domain, beside the single masks of the same size. The composed mask of each selector is "
    "written beside the table, for `refusal chat --mask` and `export --mask`.",
)(Later(f"{_REFUSAL}.draws", "Composed"))  # fmt: skip

register_study(
    "stability", of=REFUSAL, tables=("mask_stability",), plan=plans.SplitsPlan, reads=_OF_GRID,
    title="are the rows the same from other pairs? writes mask_stability.parquet",
    description="Splits the calibration pairs of a domain into two random halves, makes contrasts and a mask of each "
    "at the operating point's lambda and k, and says what the two masks share and random ones would. Each split "
    "costs as much as `refusal calibrate`.",
)(Later(f"{_REFUSAL}.structure", "MaskStability"))  # fmt: skip

register_study(
    "parts", of=REFUSAL, tables=("refusal_parts",), reads=_OF_POINTS,
    title="which projections and blocks of an edit install refusal? writes refusal_parts.parquet",
    description="The refusal margin on the held-out risk prompts and the NLL on the first 16 evaluation windows, with "
    "the rows of one projection or block of an operating point's edit alone, and with all but these: two short cells "
    "for each projection and block.",
)(Later(f"{_REFUSAL}.structure", "Parts"))  # fmt: skip

register_study(
    "baselines", of=REFUSAL, tables=("baselines",), plan=plans.SteeringPlan, reads=_OF_POINTS,
    title="do system prompts or steering vectors do as well as removing rows? writes baselines.parquet",
    description="Compares row masks, system prompts, vectors added to the residual stream, and vectors added only "
    "where a condition on the prompt holds: each way's strongest setting within the limits of base prompts refused "
    "and perplexity on the calibration pairs, measured on the held-out pairs, with the KL divergence from the "
    "unedited model on its own replies to base prompts.",
)(Later(f"{_REFUSAL}.baselines", "Baselines"))  # fmt: skip

register_study(
    "draws", of=REFUSAL, tables=("specificity", "refusal_draws"), plan=plans.DrawsPlan, reads=_OF_POINTS,
    title="is it these rows? random rows, searched over the same grid, beside them; writes specificity.parquet",
    description="Shuffles the rows within every layer, searches the shuffled masks over the same grid with the same "
    "limits on the same pairs, and measures the chosen one on the held-out pairs, once per draw. Writes the edit's "
    "rank and p among the draws, p adjusted by Holm over all selectors and domains, and a 95% prediction interval for "
    "a further draw; refusal_draws.parquet has the draws. Each draw costs as much as `refusal sweep`: fewer "
    "--selectors and --domains cost less and leave Holm less to adjust for.",
)(Later(f"{_REFUSAL}.draws", "Drawn"))  # fmt: skip
