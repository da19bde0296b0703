/** Defines two colour scales that colour-blind readers can tell apart: one hue for amounts, orange and blue for signs. */

const LIGHT = {
  amounts: ([[250, 250, 247], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]]),
  signs: ([[22, 82, 150], [120, 170, 214], [248, 248, 246], [240, 166, 88], [176, 78, 8]]),
};
const DARK = {
  amounts: ([[27, 30, 36], [30, 62, 98], [48, 112, 176], [116, 178, 232], [222, 240, 255]]),
  signs: ([[130, 190, 245], [52, 104, 160], [30, 33, 39], [160, 92, 28], [250, 180, 100]]),
};

const darkness = matchMedia("(prefers-color-scheme: dark)");
export const dark = () => darkness.matches;
export const onTheme = (listener) => darkness.addEventListener("change", listener);

/** The colour of a share 0 ... 1 of a ramp. */
function mix(stops, share) {
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const left = Math.min(stops.length - 2, Math.floor(place));
  const rest = place - left;
  return (stops[left].map((c, i) => Math.round(c + (stops[left + 1][i] - c) * rest)));
}

/**
 * How numbers become colours. `high` is the largest amount; with signs, the scale goes from -high to high.
 * @typedef {{signed: boolean, high: number}} Scale
 */

/** The scale on which all of these numbers can be told apart. */
export function scaleOf(numbers, signed) {
  let low = 0;
  let high = 0;
  for (let i = 0; i < numbers.length; i++) {
    if (!Number.isFinite(numbers[i])) continue;
    low = Math.min(low, numbers[i]);
    high = Math.max(high, numbers[i]);
  }
  return { signed: signed ?? low < 0, high: Math.max(high, -low) || 1 };
}

/** What colours can be relative to: 0 to 1, the largest number of the picture, or that of each row. */
export const COLOURINGS = ["one", "range", "row"];

/** Returns a scale for each row, on which its own largest number has the strongest colour. */
export function scalesOfRows(rows, columns, at, signed) {
  return Array.from({ length: rows }, (_, i) => scaleOf(Array.from({ length: columns }, (_, j) => at(i, j)), signed));
}
export function rgb(x, scale) {
  const ramps = dark() ? DARK : LIGHT;
  return scale.signed ? mix(ramps.signs, (x / scale.high + 1) / 2) : mix(ramps.amounts, x / scale.high);
}
export const color = (x, scale) => (Number.isFinite(x) ? `rgb(${rgb(x, scale).join(",")})` : dark() ? "#14161a" : "#e4e2dd");

/** Black or white, whichever can be read on it. */
export function ink(x, scale) {
  if (!Number.isFinite(x)) return dark() ? "#8b919c" : "#6b6f76";
  const [r, g, b] = rgb(x, scale).map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
