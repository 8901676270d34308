/* The ladder as a bar chart for a slide: what was found beside what the tutorial published, and which of it is modelled. */
#include "ladder.h"

enum { WIDTH = 1280, HEIGHT = 720, LEFT = 96, RIGHT = 48, TOP = 132, FLOOR = 560, BAR = 44, THIN = 22 };

static double top_of(const struct ladder *ladder)
{
	double most = ladder->line_gbit;

	for (int i = 0; i < LADDER_RUNGS; i++) {
		double gbit = ladder_gbit(ladder, &ladder->rows[i]);

		most = gbit > most ? gbit : most;
		if (ladder->sim && ladder_rungs[i].published > most)
			most = ladder_rungs[i].published;
	}
	return most > 0 ? most : 1;
}

static double y_of(double gbit, double most)
{
	return FLOOR - (FLOOR - TOP) * gbit / most;
}

/* About five lines at 1, 2 or 5 times a power of ten. */
static double step_of(double most)
{
	double step = 0.001;

	for (int i = 0; step * 6 < most; i++)
		step *= i % 3 == 1 ? 2.5 : 2;
	return step;
}

static void head(const struct ladder *ladder, FILE *to)
{
	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"Inter, 'Helvetica "
		"Neue', Arial, "
		"'DejaVu Sans', sans-serif\" fill=\"#1b2430\">\n"
		"<defs><pattern id=\"model\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" "
		"patternTransform=\"rotate(45)\"><rect width=\"8\" height=\"8\" fill=\"#2f6fde\"/><rect width=\"3\" "
		"height=\"8\" "
		"fill=\"#5b92ee\"/></pattern></defs>\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"#fafbfc\"/>\n"
		"<text x=\"48\" y=\"54\" font-size=\"30\" font-weight=\"700\">One idea at a time: %s</text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT,
		ladder->sim       ? "from one NIC to the line (simulated)"
		: ladder->connect ? "real NICs (measured)"
				  : "one host, real NICs (measured)");
	fprintf(to,
		"<text x=\"48\" y=\"84\" font-size=\"16\" fill=\"#5b6472\">Gbit/s, pages of %llu bytes in random "
		"order, %s %s, "
		"%s of %d round%s</text>\n",
		(unsigned long long)ladder->page_bytes, ladder->sim ? "simulated machine" : "provider",
		ladder->sim ? ladder->sim : ladder->provider, ladder->sim ? "best" : "median", ladder->rows[0].rounds,
		ladder->rows[0].rounds == 1 ? "" : "s");
}

static void legend(const struct ladder *ladder, FILE *to)
{
	int x = 820;

	fprintf(to,
		"<rect x=\"%d\" y=\"102\" width=\"14\" height=\"14\" fill=\"#2f6fde\"/><text x=\"%d\" y=\"114\" "
		"font-size=\"14\">measured</text>\n",
		x, x + 20);
	if (!ladder->sim)
		return;
	fprintf(to,
		"<rect x=\"%d\" y=\"102\" width=\"14\" height=\"14\" fill=\"url(#model)\"/><text x=\"%d\" y=\"114\" "
		"font-size=\"14\">partly modelled</text>\n"
		"<rect x=\"%d\" y=\"102\" width=\"14\" height=\"14\" fill=\"#c3cad4\"/><text x=\"%d\" y=\"114\" "
		"font-size=\"14\">tutorial, two p5 hosts</text>\n",
		x + 105, x + 125, x + 255, x + 275);
}

static void grid(const struct ladder *ladder, double most, FILE *to)
{
	double step = step_of(most);

	for (double at = 0; at <= most * 1.001; at += step)
		fprintf(
		    to,
		    "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e8ee\"/><text x=\"%d\" y=\"%.1f\" "
		    "font-size=\"13\" fill=\"#5b6472\" text-anchor=\"end\">%g</text>\n",
		    LEFT, WIDTH - RIGHT, y_of(at, most), y_of(at, most), LEFT - 10, y_of(at, most) + 4, at);
	if (ladder->line_gbit > 0)
		fprintf(to,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d1495b\" stroke-width=\"2\" "
			"stroke-dasharray=\"7 5\"/><text x=\"%d\" y=\"%.1f\" font-size=\"14\" fill=\"#d1495b\">all "
			"NICs together: "
			"%.0f</text>\n",
			LEFT, WIDTH - RIGHT, y_of(ladder->line_gbit, most), y_of(ladder->line_gbit, most), LEFT + 8,
			y_of(ladder->line_gbit, most) + 18, ladder->line_gbit);
}

static void bar(const struct ladder *ladder, const struct ladder_row *row, int middle, double most, FILE *to)
{
	double gbit = ladder_gbit(ladder, row), y = y_of(gbit, most), published = row->rung->published;
	bool beside = ladder->sim && published > 0;
	int x = middle - (beside ? BAR / 2 + THIN / 2 : BAR / 2);
	char modelled[64];

	ladder_modelled(ladder, row->rung, modelled, sizeof(modelled));
	fprintf(
	    to,
	    "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"3\" fill=\"%s\"><title>%s: %s</title></rect>\n"
	    "<text x=\"%d\" y=\"%.1f\" font-size=\"16\" font-weight=\"700\" text-anchor=\"middle\">%.*f</text>\n",
	    x, y, BAR, FLOOR - y, *modelled ? "url(#model)" : "#2f6fde", row->rung->program, row->rung->gain,
	    x + BAR / 2, y - 8, gbit < 100 ? 1 : 0, gbit);
	if (beside)
		fprintf(to,
			"<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"3\" fill=\"#c3cad4\"/>"
			"<text x=\"%d\" y=\"%.1f\" font-size=\"12\" fill=\"#5b6472\" text-anchor=\"middle\" "
			"stroke=\"#fafbfc\" "
			"stroke-width=\"4\" paint-order=\"stroke\">%.*f</text>\n",
			x + BAR + 2, y_of(published, most), THIN, FLOOR - y_of(published, most), x + BAR + 6 + THIN / 2,
			y_of(published, most) - 6, published < 100 ? 1 : 0, published);
	fprintf(to,
		"<text x=\"%d\" y=\"%d\" font-size=\"14\" font-weight=\"700\" text-anchor=\"middle\">%s</text>"
		"<text x=\"%d\" y=\"%d\" font-size=\"12\" fill=\"#5b6472\" text-anchor=\"middle\">%s</text>"
		"<text x=\"%d\" y=\"%d\" font-size=\"12\" fill=\"#5b6472\" text-anchor=\"middle\">%.0f ns CPU</text>\n",
		middle, FLOOR + 26, row->rung->program, middle, FLOOR + 46,
		row->rung->number == 7   ? "one NIC"
		: row->rung->number == 9 ? "every NIC"
					 : row->rung->idea,
		middle, FLOOR + 66, ladder_cost(ladder, row));
}

void ladder_print_svg(const struct ladder *ladder, FILE *to)
{
	double most = top_of(ladder) * 1.04;
	int step = (WIDTH - LEFT - RIGHT) / LADDER_RUNGS;

	head(ladder, to);
	legend(ladder, to);
	grid(ladder, most, to);
	for (int i = 0; i < LADDER_RUNGS; i++)
		bar(ladder, &ladder->rows[i], LEFT + step * i + step / 2, most, to);
	if (ladder->sim)
		fprintf(to,
			"<text x=\"48\" y=\"664\" font-size=\"14\" fill=\"#5b6472\">Real programs on simulated NICs: "
			"their CPU time per "
			"write is measured, the host around it is modelled: a core per worker, %.0f ns per post,</text>"
			"<text x=\"48\" y=\"686\" font-size=\"14\" fill=\"#5b6472\">+%.0f ns for the other socket's "
			"memory, %.0f ns for a "
			"shared cache line to change cores (published measurements). None is fitted to the "
			"tutorial.</text>\n",
			ladder->model.post_ns, ladder->model.far_ns, ladder->model.hop_ns);
	else
		fprintf(to,
			"<text x=\"48\" y=\"664\" font-size=\"14\" fill=\"#5b6472\">%s; nothing is modelled.</text>\n",
			ladder->connect ? "Between two hosts, or namespaces of one"
					: "Both processes share this host's cores");
	fputs("</svg>\n", to);
}
