"""The sentences of docs/zh/claims.md, from the same figures as the English ones in page.py."""

from __future__ import annotations

from typing import Any

from benchmarks.experiments import findings
from benchmarks.experiments.findings import PILOT_COPYING, PILOT_LOG, PILOT_RECALL, copied, kept, share, table, times
from benchmarks.experiments.log import Figures, Wording

HEAD = """# 实测的说法

关于 Transformer 的说法很多，亲眼见过的人很少。这里把每种说法做成一个简短的实验，只用一个核心：小模型，编造的文本，没有另外说明的都只用一个随机种子。在这个规模上看不出来的，与看得出来的一样照实写出。`make claims` 重新测量这一切，并用保存在 `docs/claims/` 里的数据写出这一页和[英文页](../claims.md)：两页的数相同，图也共用，所以图中的文字是英文。循环网络是怎样的，见[训练](../train.md#a-recurrent-network-to-compare-with)（英文）；各个零件是什么，见[逐行读 Transformer](transformer.md)。
"""
MISSING = "尚未测量"

MODELS = {
    "Transformer": "Transformer",
    "LSTM, attention": "带注意力的 LSTM",
    "GRU, attention": "带注意力的 GRU",
    "LSTM": "LSTM",
    "GRU": "GRU",
}
NORMS = {
    "post-norm": "后归一化",
    "post-norm, no warm-up": "后归一化，无预热",
    "pre-norm": "前归一化",
    "pre-norm, no warm-up": "前归一化，无预热",
}
LEVELS = {
    "word vector": "词向量",
    "with its position": "加上位置",
    "after layer 1": "第 1 层之后",
    "after layer 2": "第 2 层之后",
}
WORDS = {"it": "it", "the adjective": "形容词"}


def made(record: dict[str, Any]) -> str:
    """With what the figures of a claim were made."""
    where = (
        f"{record['machine']['processor']} 的一个核心，{record['seconds']:.0f} 秒，torch {record['versions']['torch']}"
    )
    return f"`{record['command']}`，{record['date']}，{where}。"


def verdict(holds: bool) -> str:
    return "看得出来。" if holds else "这里看不出来。"


def tell_speed(figures: Figures) -> str:
    lengths, lstm, gru = figures["lengths"], "LSTM, attention", "GRU, attention"
    said = {
        (True, True): "看得出来。",
        (True, False): "与 LSTM 相比看得出来，与 GRU 相比看不出来。",
        (False, True): "与 GRU 相比看得出来，与 LSTM 相比看不出来。",
        (False, False): "这里看不出来。",
    }[findings.is_faster(figures, lstm), findings.is_faster(figures, gru)]

    def both(other: str, how: str) -> str:
        return (
            f"是 {other.partition(',')[0]} 的 {times(figures, other, how, 0)} 倍和 {times(figures, other, how, -1)} 倍"
        )

    sizes = "、".join(f"{MODELS[name]} {found['parameters']:,}" for name, found in figures["models"].items())
    return (
        f"{said}每次只训练一篇文本时，Transformer 在长 {lengths[0]} 个词元和长 {lengths[-1]} 个词元的文本上，速度{both(gru, 'one')}，"
        f"{both(lstm, 'one')}（两者都带注意力）；每批 {figures['batch']:,} 个词元时，{both(gru, 'batch')}，{both(lstm, 'batch')}。"
        f"GRU 处理长文本不比处理短文本快，因为它只能一个位置接一个位置地走。LSTM 也是这样，但是在 CPU 上，PyTorch 把整个 LSTM 交给 oneDNN "
        f"一次算完，而且它的参数比 Transformer 少。一个核心能同时做的事不多；能同时做很多事的设备没有测量。时间是处理器自己的时间，包括前向和反向。"
        f"宽度 128，2 + 2 层；参数量：{sizes}。{pilot(recall=True, copying=True)}"
    )


def pilot(*, recall: bool = False, copying: bool = False) -> str:
    """Which Transformer it is, and why."""
    found, wrote = PILOT_RECALL, PILOT_COPYING
    told = [
        f"隔着空白找回符号（{found['updates']} 次更新），它找回 {found['transformer']} 到 {found['to']} %，还在学，带注意力的 LSTM 和 GRU 找回 {found['attending']} 到 {found['most']} %",
        f"抄写 {wrote['symbols']} 个符号（{wrote['updates']} 次更新），它写对 {wrote['transformer']} %，带注意力的 LSTM 写对 {wrote['attending']} %",
    ]
    shown = "；".join(each for each, wanted in zip(told, (recall, copying), strict=True) if wanted)
    where = "（后面找回和抄写的实验也一样）" if recall and copying else " "
    return (
        f"这里的 Transformer{where}用前归一化和旋转位置编码；这样选，是因为在预备实验里，用后归一化和正弦位置的 Transformer "
        f"输给了带注意力的 LSTM：{shown}（[试验记录](../{PILOT_LOG})，英文）。"
    )


def tell_memory(figures: Figures, across: str) -> str:
    rows = [
        [MODELS[name], *map(share, found["accuracy"]), f"{found['seconds']:.0f}"]
        for name, found in figures["models"].items()
    ]
    return table(["模型", *map(str, figures[across]), "秒"], rows)


def tell_recall(figures: Figures) -> str:
    lost = {name: f"{100 * value:.1f}" for name, value in findings.lost(figures).items()}
    far = "看得远的是注意力，不管它周围是什么。" if findings.most_lost_attending(figures) < 0.05 else ""
    return (
        f"{verdict(findings.fades(figures))}空白从 {figures['distances'][0]} 个增加到 {figures['longest']} 个时，不带注意力的 LSTM 失去 "
        f"{lost['LSTM']} 个百分点，GRU 失去 {lost['GRU']} 个；带注意力时，它们失去 {lost['LSTM, attention']} 和 {lost['GRU, attention']} 个，"
        f"Transformer 失去 {lost['Transformer']} 个。{far}每个模型都更新了 {figures['updates']:,} 次；{figures['distances'][-1]} 个空白这样的距离，训练时从未有过。"
        f"{pilot(recall=True)}\n\n" + tell_memory(figures, "distances")
    )


def tell_copying(figures: Figures) -> str:
    without, attending, transformer = copied(figures)
    behind = "" if transformer >= attending else "，更新次数这样少，它还落在带注意力的循环网络后面"
    return (
        f"{verdict(findings.needs_attention(figures))}文本有 {figures['lengths'][-1]} 个符号时，不带注意力的网络中较好的写对 {share(without)}，"
        f"带注意力的循环网络中较好的写对 {share(attending)}，Transformer 写对 {share(transformer)}{behind}。每个模型都更新了 {figures['updates']:,} 次。"
        f"{pilot(copying=True)}\n\n" + tell_memory(figures, "lengths")
    )


def tell_saturation(figures: Figures) -> str:
    divided, plain = figures["divided"], figures["plain"]
    return (
        f"{verdict(findings.saturates(figures))}有 {figures['keys']} 个随机的键，宽度为 {figures['widths'][-1]}：点积照原样用，最大的一个得到 "
        f"{share(plain['largest'][-1])} 的权重；除以平方根以后，得到 {share(divided['largest'][-1])}。梯度能通过的全在于 softmax 的斜率，"
        f"不除时它是 {plain['slope'][-1]:.3f}，除了以后是 {divided['slope'][-1]:.3f}。"
    )


def tell_residuals(figures: Figures) -> str:
    def alike(stack: Figures) -> str:
        layer = findings.same_after(stack)
        return "是到最后一层也没有" if layer is None else f"是在 {layer} 层之后"

    pre, post, bare, naked = findings.stacks(figures)
    return (
        f"{verdict(findings.sums_matter(figures))}{figures['depth']} 层顶端的梯度到达底端时，有残差、前归一化时是原来的 {kept(pre)} 倍，有残差、后归一化时 {kept(post)} 倍，"
        f"没有残差时 {kept(bare)} 倍，连归一化也没有时 {kept(naked)} 倍：梯度的大小主要靠归一化就撑住了。残差还保住了文本本身：在没有训练过的模型里，"
        f"一篇文本的所有位置会变成同一个（两个位置的余弦平均高于 0.99），没有残差时{alike(bare)}，后归一化{alike(post)}，"
        f"前归一化{alike(pre)}（Dong 等，2021）。"
    )


def tell_heads(figures: Figures) -> str:
    mean = dict(zip(figures["heads"], figures["mean"], strict=True))
    runs = zip(figures["heads"], figures["accuracy"], strict=True)
    helps = findings.heads_help(figures)
    said = "看得出来，但不是每个随机种子都如此。" if helps is None else verdict(helps)
    rows = [[str(heads), share(mean[heads]), "、".join(map(share, right))] for heads, right in runs]
    return (
        f"{said}宽度 {figures['width']}，更新 {figures['updates']:,} 次，每次 {figures['sentences']} 句演示用的句子，{figures['seeds']} 个随机种子："
        f"在没有见过的句子里，八个头说对 {share(mean[8])} 的下一个词元，一个头说对 {share(mean[1])}。\n\n"
        + table(["头数", "平均", "各次"], rows)
    )


def tell_permutation(figures: Figures) -> str:
    others = findings.positions_apart(figures)
    return (
        f"{verdict(findings.order_is_lost(figures))}在没有训练过、也没有位置的编码器里，打乱文本后得到的状态，就是把原文的状态同样打乱，"
        f"相差只有状态大小的 {figures['apart']['none']:.0e}，那是舍入误差。有位置时，两者相差状态大小的 {min(others):.2f} 到 {max(others):.2f}。"
    )


def tell_norms(figures: Figures) -> str:
    right, losses = figures["accuracy"], figures["losses"]
    end = {name: f"{values[-1]:.2f}" for name, values in losses.items()}
    warm = (
        "预热对后归一化有帮助"
        if findings.warmup_helps(figures)
        else "在这个学习率和深度下，五十次更新的预热救不了后归一化"
    )
    rows = [[NORMS[name], f"{losses[name][-1]:.3f}", share(right[name])] for name in losses]
    return (
        f"{verdict(findings.pre_norm_is_ahead(figures))}没有预热时，前归一化结束在每词元 {end['pre-norm, no warm-up']} 奈特，"
        f"后归一化结束在 {end['post-norm, no warm-up']}。{warm}：它结束在 {end['post-norm']}，前归一化有预热时结束在 {end['pre-norm']}。"
        f"学习率都是 {figures['rate']:g}；低一些会对后归一化更有利。\n\n"
        + table(["", "最后几次更新的损失", "没有见过的句子，说对的"], rows)
    )


def tell_contexts(figures: Figures) -> str:
    rows = []
    for name, found in figures["words"].items():
        rows.append([f"{WORDS[name]}：余弦距离", *(f"{value:.2g}" for value in found["apart"])])
        rows.append([f"{WORDS[name]}：il 还是 elle", *map(share, found["guessed"])])
    it = figures["words"]["it"]
    return (
        f"{verdict(findings.state_knows_more(figures))}在 “{figures['texts'][0]}” 和把 *street* 换成 *bridge* 的句子里，*it* 的词向量是同一个，译成法文却一个是 *elle*，"
        f"一个是 *il*。经过玻璃模型的两层之后，它的两个状态相距 {it['apart'][-1]:.2g}（余弦距离；*it* 与 *wide* 相距 {figures['different words'][-1]:.2g}）："
        f"差别很小，却正在要紧的地方。在 {figures['sentences']} 个句子里，用 *it* 的状态做一个线性映射，有 {share(it['guessed'][-1])} 分得清 *il* 和 *elle*；"
        f"用处处相同的静态词向量，只有 {share(it['guessed'][0])}。形容词的词向量自己就知道一些，因为不是什么东西都会累；它的状态知道得更多。\n\n"
        + table(["", *(LEVELS[level] for level in figures["levels"])], rows)
    )


def tell_cost(figures: Figures) -> str:
    constant, linear, square = figures["fit"]
    lengths, crossing = figures["lengths"], findings.crossing(figures)
    dearer = f"从 {crossing} 个词元起，" if crossing else "要到没有测过的长度，"
    return (
        f"{verdict(findings.is_quadratic(figures))}从 {lengths[-3]:,} 到 {lengths[-1]:,} 个词元，时间按长度的 {figures['exponent']} 次方增长。拟合的结果是 "
        f"{square:.2g} n² {linear:+.2g} n {constant:+.2g} 毫秒，误差至多 {share(figures['error'])}。前馈层按 n 增长；{dearer}注意力比它贵"
        f"（宽度 128，四个头），再短就比它便宜：句子都很短，在那里平方无关紧要。"
    )


CLAIMS = {
    "speed": Wording("各个位置并行", "有注意力，所有位置可以同时训练；循环网络要一个位置接一个位置地走。", tell_speed),
    "recall": Wording("隔得很远的东西", "注意力留得住远处的东西；在循环网络里它会淡去。", tell_recall),
    "copying": Wording("一篇文本装进一个向量", "没有注意力，整篇文本都得装进最后一个状态。", tell_copying),
    "saturation": Wording("除以 d_k 的平方根", "缩放使 softmax 不至于饱和。", tell_saturation),
    "residuals": Wording("残差连接", "它让梯度在很深的堆叠里活下来。", tell_residuals),
    "heads": Wording("一个头还是八个头", "总宽度相同时，多个头胜过一个头。", tell_heads),
    "permutation": Wording("位置", "没有位置时，打乱输入只会同样打乱输出，再无别的变化。", tell_permutation),
    "norms": Wording("归一化在前还是在后", "前归一化不用预热也能训练，后归一化却需要预热。", tell_norms),
    "contexts": Wording(
        "一个词，两种上下文", "一个词在表里只有一个向量；经过注意力，在每种上下文里各有一个。", tell_contexts
    ),
    "cost": Wording("代价：平方", "注意力的开销随长度的平方增长。", tell_cost),
}
