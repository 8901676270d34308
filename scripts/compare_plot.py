"""Draws what scripts/compare.py measured: one row per comparison, its ratio on a logarithmic scale."""
import math
from html import escape

ROW, TOP, LEFT, WIDTH, RIGHT, BOTTOM = 20, 70, 330, 520, 170, 50
LEAST, MOST = 0.1, 30.0
SIZES = {64: "64 B", 4096: "4 KiB", 16384: "16 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
GOOD, BAD, PLAIN = "#1a7f37", "#b3261e", "#57606a"


def place(ratio):
    """Position of a ratio, in pixels from the left edge."""
    clipped = min(max(ratio, LEAST), MOST)
    return LEFT + WIDTH * (math.log(clipped) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))


def text(x, y, words, anchor="start", color="#1f2328", size=11):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" font-size="%d">%s</text>' % (
        x, y, anchor, color, size, escape(words))


def line(x1, y1, x2, y2, color, width=1.0, dash=""):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"%s/>' % (
        x1, y1, x2, y2, color, width, ' stroke-dasharray="%s"' % dash if dash else "")


def row(result, y):
    color = PLAIN if result["met"] is None else GOOD if result["met"] else BAD
    over = "p5 (simulated)" if result["simulated"] else result["provider"]
    name = "%s, %s, %s vs %s" % (result["measure"], over, SIZES[result["size"]], result["other_name"])
    low, high = result["spread"]
    parts = [text(LEFT - 10, y + 4, name, "end"), line(place(low), y, place(high), y, color, 2.0),
             '<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>' % (place(result["ratio"]), y, color)]
    if result["goal"] is not None:
        parts.append(line(place(result["goal"]), y - 7, place(result["goal"]), y + 7, "#1f2328", 2.0))
    lower = " (less is better)" if result["unit"] == "us" else ""
    parts.append(text(LEFT + WIDTH + 10, y + 4, "%.2f x%s" % (result["ratio"], lower), color=color))
    return parts


def draw(path, results, facts):
    height = TOP + ROW * len(results) + BOTTOM
    width = LEFT + WIDTH + RIGHT
    foot = height - BOTTOM + 10
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">' % (width, height),
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             text(20, 24, "weft compared with others: weft / other, median and spread of interleaved rounds", size=15),
             text(20, 42, "%s, %s cores, %s" % (facts["cpu"], facts["cores"], facts["libfabric"]), color=PLAIN)]
    for mark in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20):
        x = place(mark)
        parts.append(line(x, TOP - 12, x, foot - 14, "#1f2328" if mark == 1 else "#d0d7de", 1.0, "" if mark == 1 else "3,3"))
        parts.append(text(x, foot, "%g" % mark, "middle", PLAIN))
    for i, result in enumerate(results):
        parts += row(result, TOP + ROW * i)
    parts.append(text(20, height - 14, "black mark: the goal; green: met; red: not met; grey: no goal. "
                      "Simulated figures are of modelled NICs.", color=PLAIN))
    parts.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n")
