/** 页面框架和共用的文字，简体中文。 */

export const strings = {
  "view.whole": "整个模型", "view.journey": "旅程", "view.atlas": "注意力", "view.head": "注意力头", "view.microscope": "显微镜", "view.decoding": "解码", "view.beam": "束搜索", "view.lens": "透镜", "view.whatif": "如果", "view.positions": "位置", "view.space": "嵌入", "view.alignment": "对齐", "view.time": "训练", "view.weights": "权重", "view.output": "输出",
  "side.a": "A", "side.b": "B", "side.diff": "B − A",
  "stack.encoder": "编码器", "stack.decoder": "解码器",
  "kind.self_attention": "自注意力", "kind.cross_attention": "交叉注意力", "kind.feed_forward": "前馈",
  "text.source": "源文", "text.target": "译文", "text.text": "文本",
  "map.title": "模型", "map.output": "线性层、softmax", "map.heads": "状态", "map.memory": "记忆 →", "map.embedding": "嵌入", "map.position": "位置",
  "map.width": "宽度 {n}", "map.hidden": "前馈 {n}", "map.heads2": "{n} 个头，每头 {k}", "map.post": "后归一化", "map.pre": "前归一化", "map.tied": "输出与嵌入共享权重", "map.untied": "输出有自己的权重",
  "map.pos.sinusoidal": "正弦位置", "map.pos.sinusoidal-halves": "正弦位置（分两半）", "map.pos.learned": "学习的位置", "map.pos.rotary": "旋转位置", "map.pos.none": "无位置",
  sentence: "句子", prompt: "要续写的文本", forced: "输出", forcedEmpty: "留空：由模型决定", secondText: "第二段文本", run: "运行",
  decodingSettings: "解码方式", beamWidth: "束宽", lengthPenalty: "长度惩罚", temperature: "温度", seed: "种子", maxTokens: "最多",
  model: "模型", parameters: "{n} 个参数", colour: "颜色", "colour.one": "从 0 到 1", "colour.range": "到最大的数", "colour.row": "到每行最大的数", "colour.rangeEnd": "图中最大", "colour.rowEnd": "本行最大", rareWords: "模型可能不认识：", rareWhy: "它们被切成单个字母或字节，而常见的词在词表里是完整的。由它们得出的输出可能毫无意义。", more: "更多", present: "演示", copyLink: "复制链接", offline: "已保存的运行，没有服务器", offlineMissing: "保存的文件里没有这一项：用 regard look 打开模型即可查看。", language: "语言",
  attention: "注意力", layer: "层", head: "头", badLink: "本页的地址不对：{key} = {text}", noServer: "服务器没有应答：请重新启动 regard look，再刷新本页。", showsA: "这个视图没有差可看：显示的是 A。", finalWeights: "这里显示的权重和表属于最终模型，而不是训练的这一步。", difference: "B − A", dropB: "去掉 B", differentShapes: "A 与 B 的词元数不同，无法相减：请并排显示。",
  honest: "注意力不是对齐，也不是解释：它说明一个头看向哪里，而不是这改变了什么。", "honest.effect": "去掉一个头的效果在“注意力”视图里并列显示。",
  row: "行", column: "列", firstRows: "{of} 行中的前 {n} 行", vector: "向量", range: "颜色范围 {low} 到 {high}", table: "表格", asTable: "显示为表格", copyPython: "复制为 Python",
  "beam.not": "不在最好之列", "beam.outdone": "在第 {n} 步被超过", "beam.search": "搜索已见分晓", "beam.length": "长度上限", "beam.ended": "已结束",
  lesson: "课程", "lesson.none": "无", "lesson.print": "打印练习题", "lesson.close": "关闭课程", "lesson.openModel": "用模型 {model} 打开。", "lesson.otherModel": "本课程针对模型 {model}，在当前模型上答案可能不同。",
  "lesson.guess": "你的猜测", "lesson.reveal": "看模型的答案", "lesson.yes": "是", "lesson.no": "否", "lesson.right": "猜对了", "lesson.other": "与你的猜测不同", "lesson.model": "模型的答案：", "lesson.missing": "没有这门课程",
};
