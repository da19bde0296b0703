/** 发布页面（模型在页面中运行）的文字，简体中文。 */

export const strings = {
  "published.engine": "本页的引擎",
  "published.loading": "正在加载模型：{loaded} / {total} MB。",
  "published.noEngine": "模型无法在此浏览器中启动：请更新浏览器，再刷新本页。",
  "published.inPage": "模型就在本页运行：您输入的内容不会离开这里。",
  "published.compare": "与 PyTorch 比较",
  "published.compared": "“{text}”的 {tensors} 个张量与 PyTorch 的最大差：张量最大数的 {delta} {mark}",
};
