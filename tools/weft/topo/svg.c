/*
 * weft topo --svg: a picture of the machine. A panel for each NUMA node: its cores as small squares in the
 * colour of the group they serve (a ringed one is a worker's), below it a card for each PCI switch with its
 * GPUs and NICs. Under the panels a row for each group. Colours and words say the same, so it survives a
 * black-and-white printer.
 */
#include "view.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
	MARGIN = 40,
	TITLE = 84,
	GAP = 20,
	CARD_WIDTH = 182,
	CARD_GAP = 12,
	PANEL_PAD = 18,
	PANEL_HEAD = 46,
	CORE = 11,
	CORE_STEP = 14,
	GPU_HEIGHT = 46,
	NIC_HEIGHT = 26,
	CHIP_GAP = 6,
	CARD_HEAD = 26,
	CARD_PAD = 10,
	ROW = 27,
	TAG = 19,
	LETTER = 7, /* rough width of a letter of 12 px */
};

static const char *const palette[] = { "#2563c9", "#d9622b", "#1f8f5f", "#8a4fc7",
				       "#b07d00", "#c43672", "#0f8a9d", "#5b6472" };

static const char *colour_of(int group)
{
	return group < 0 ? "#a3acb8" : palette[(size_t)group % (sizeof(palette) / sizeof(*palette))];
}

struct panel {
	int numa;
	const struct wf_topo_node *node; /* NULL: the place is not known */
	size_t cards, columns;
	int x, y, width, height, cores_height;
};

/* Text, escaped for XML and cut to about this many pixels (0: not cut). */
static void text(FILE *to, int x, int y, const char *attributes, int room, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
static void text(FILE *to, int x, int y, const char *attributes, int room, const char *format, ...)
{
	char line[512];
	size_t letters = room ? (size_t)(room / LETTER) : sizeof(line), length;
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(to, "<text x=\"%d\" y=\"%d\" %s>", x, y, attributes);
	length = strlen(line);
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)line[i];

		if (i + 1 >= letters && i + 1 < length) {
			fputs("…", to);
			break;
		}
		if (c == '<' || c == '&' || c == '>' || c == '"')
			fprintf(to, "&#%d;", c);
		else
			fputc(c < 0x20 || c == 0x7f ? ' ' : c, to);
	}
	fputs("</text>\n", to);
}

static void box(FILE *to, int x, int y, int width, int height, int radius, const char *attributes)
{
	fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\" %s/>\n", x, y, width, height, radius,
		attributes);
}

static int card_height(const struct topo_place *place)
{
	int height = CARD_HEAD + CARD_PAD;

	for (size_t d = 0; d < place->count; d++)
		height += (place->devices[d].is_gpu ? GPU_HEIGHT : NIC_HEIGHT) + CHIP_GAP;
	return height;
}

static void draw_gpu(const struct topo_view *view, const struct topo_device *device, int x, int y, FILE *to)
{
	const struct wf_topo_gpu *gpu = &view->gpus[device->index];
	char pci[WF_TOPO_PCI_BYTES], style[64];
	int width = CARD_WIDTH - 2 * CARD_PAD;

	snprintf(style, sizeof(style), "fill=\"%s\"", colour_of(device->group));
	box(to, x, y, width, GPU_HEIGHT, 6, style);
	text(to, x + 10, y + 20, "class=\"chip\" fill=\"#ffffff\"", width - 20, "GPU %s",
	     wf_topo_pci_text(gpu->pci, pci));
	if (device->group >= 0)
		text(to, x + width - 10, y + 20, "class=\"small\" fill=\"#ffffff\" text-anchor=\"end\"", 0, "%d",
		     device->group);
	text(to, x + 10, y + 36, "class=\"small\" fill=\"#ffffff\" fill-opacity=\"0.85\"", width - 16, "%s",
	     strcmp(gpu->name, "GPU") == 0 ? "" : gpu->name);
}

static void draw_nic(const struct topo_view *view, const struct topo_device *device, int x, int y, FILE *to)
{
	const struct wf_topo_nic *nic = &view->nics[device->index];
	char rate[TOPO_TEXT], style[64];
	int width = CARD_WIDTH - 2 * CARD_PAD;

	topo_rate_text(nic->bits_per_second, rate);
	/* "100 Gbit/s" leaves no room for the name: "100 G". */
	if (strlen(rate) > 6 && strcmp(rate + strlen(rate) - 5, "bit/s") == 0)
		rate[strlen(rate) - 5] = '\0';
	box(to, x, y, width, NIC_HEIGHT, 5, "fill=\"#ffffff\" stroke=\"#cfd6df\"");
	snprintf(style, sizeof(style), "fill=\"%s\"", colour_of(device->group));
	box(to, x, y, TAG, NIC_HEIGHT, 5, style);
	if (device->group >= 0)
		text(to, x + TAG / 2, y + 17, "class=\"tag\" fill=\"#ffffff\"", 0, "%d", device->group);
	text(to, x + TAG + 7, y + 17, "", width - TAG - (*rate ? 46 : 10), "%s", nic->name);
	text(to, x + width - 8, y + 17, "class=\"small\" fill=\"#5b6472\" text-anchor=\"end\"", 0, "%s", rate);
}

static void draw_card(const struct topo_view *view, const struct topo_place *place, int x, int y, FILE *to)
{
	char name[TOPO_TEXT];
	int at = y + CARD_HEAD;

	box(to, x, y, CARD_WIDTH, card_height(place), 8, "fill=\"#f1f4f8\" stroke=\"#dde3ea\"");
	topo_bridge_text(place, name);
	text(to, x + CARD_PAD, y + 18, "class=\"small\" fill=\"#5b6472\"", CARD_WIDTH - 16, "%s",
	     *name ? name : "not on PCI");
	for (size_t d = 0; d < place->count; d++) {
		const struct topo_device *device = &place->devices[d];

		if (device->is_gpu)
			draw_gpu(view, device, x + CARD_PAD, at, to);
		else
			draw_nic(view, device, x + CARD_PAD, at, to);
		at += (device->is_gpu ? GPU_HEIGHT : NIC_HEIGHT) + CHIP_GAP;
	}
}

static int group_of_core(const struct topo_view *view, uint32_t core, bool *ret_worker)
{
	int found = -1;

	*ret_worker = false;
	for (size_t i = 0; i < view->plan->count; i++) {
		const struct wf_topo_group *group = &view->plan->groups[i];

		*ret_worker = *ret_worker || group->worker == (int)core;
		for (size_t c = 0; c < group->core_count && found < 0; c++)
			if (group->cores[c] == core)
				found = (int)i;
	}
	return found;
}

/* Whole dozens and eights read better than what happens to fit. */
static size_t cores_a_row(const struct panel *panel)
{
	size_t fit = (size_t)((panel->width - 2 * PANEL_PAD + CORE_STEP - CORE) / CORE_STEP);

	return fit >= 48 ? 48 : fit >= 24 ? 24 : fit >= 16 ? 16 : fit >= 8 ? 8 : 4;
}

static void draw_cores(const struct topo_view *view, const struct panel *panel, FILE *to)
{
	size_t row = cores_a_row(panel), count = panel->node->core_count;
	/* A full row is as wide as the cards below it. */
	double step = count < row ? CORE_STEP : (double)(panel->width - 2 * PANEL_PAD - CORE) / (double)(row - 1);

	for (size_t c = 0; c < count; c++) {
		double x = panel->x + PANEL_PAD + (double)(c % row) * step;
		int y = panel->y + PANEL_HEAD + (int)(c / row) * CORE_STEP;
		bool worker;
		int group = group_of_core(view, panel->node->cores[c], &worker);

		fprintf(to,
			"<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" fill=\"%s\" "
			"fill-opacity=\"%s\"%s><title>core %u</title></rect>\n",
			x, y, CORE, CORE, group < 0 ? "#dde3ea" : colour_of(group), worker || group < 0 ? "1" : "0.38",
			worker ? " stroke=\"#1b2430\" stroke-width=\"2\"" : "", panel->node->cores[c]);
	}
}

static void draw_panel(const struct topo_view *view, const struct panel *panel, FILE *to)
{
	int top = panel->y + PANEL_HEAD + panel->cores_height, tallest = 0;
	size_t drawn = 0;

	box(to, panel->x, panel->y, panel->width, panel->height, 12,
	    "fill=\"#ffffff\" stroke=\"#cfd6df\" stroke-width=\"1.2\"");
	if (panel->node) {
		char socket[32] = "", memory[32] = "";

		if (panel->node->package >= 0)
			snprintf(socket, sizeof(socket), "socket %d   ", panel->node->package);
		if (panel->node->memory_bytes)
			snprintf(memory, sizeof(memory), "%.4g GiB   ", (double)panel->node->memory_bytes / (1 << 30));
		text(to, panel->x + PANEL_PAD, panel->y + 28, "class=\"head\"", 0, "NUMA node %d", panel->numa);
		text(to, panel->x + panel->width - PANEL_PAD, panel->y + 28,
		     "class=\"small\" fill=\"#5b6472\" text-anchor=\"end\" xml:space=\"preserve\"", 0, "%s%s%zu cores",
		     socket, memory, panel->node->core_count);
		draw_cores(view, panel, to);
	} else {
		text(to, panel->x + PANEL_PAD, panel->y + 28, "class=\"head\"", 0, "place not known");
	}
	for (size_t p = 0; p < view->place_count; p++) {
		const struct topo_place *place = &view->places[p];
		int column = (int)(drawn % panel->columns);

		if (place->numa != panel->numa)
			continue;
		if (!column && drawn) {
			top += tallest + CARD_GAP;
			tallest = 0;
		}
		draw_card(view, place, panel->x + PANEL_PAD + column * (CARD_WIDTH + CARD_GAP), top, to);
		tallest = card_height(place) > tallest ? card_height(place) : tallest;
		drawn++;
	}
}

static int cards_height(const struct topo_view *view, const struct panel *panel)
{
	int height = 0, tallest = 0;
	size_t seen = 0;

	for (size_t p = 0; p < view->place_count; p++) {
		if (view->places[p].numa != panel->numa)
			continue;
		if (seen && seen % panel->columns == 0) {
			height += tallest + CARD_GAP;
			tallest = 0;
		}
		tallest = card_height(&view->places[p]) > tallest ? card_height(&view->places[p]) : tallest;
		seen++;
	}
	return height + tallest;
}

static void measure(const struct topo_view *view, struct panel *panel)
{
	size_t rows;

	for (size_t p = 0; p < view->place_count; p++)
		panel->cards += view->places[p].numa == panel->numa;
	panel->columns = panel->cards < 2 ? 2 : panel->cards < 4 ? panel->cards : 4;
	panel->width = 2 * PANEL_PAD + (int)panel->columns * (CARD_WIDTH + CARD_GAP) - CARD_GAP;
	rows = panel->node ? (panel->node->core_count + cores_a_row(panel) - 1) / cores_a_row(panel) : 0;
	panel->cores_height = rows ? (int)rows * CORE_STEP + 14 : 0;
	panel->height = PANEL_HEAD + panel->cores_height + cards_height(view, panel) + PANEL_PAD;
}

/* Two panels beside each other, the taller one of each pair giving the height. Returns the bottom. */
static int arrange(struct panel *panels, size_t count, int *ret_width)
{
	int y = TITLE, width = 0;

	for (size_t i = 0; i < count; i += 2) {
		struct panel *left = &panels[i], *right = i + 1 < count ? &panels[i + 1] : NULL;
		int height = right && right->height > left->height ? right->height : left->height, end;

		left->x = MARGIN;
		left->y = y;
		left->height = height;
		end = left->x + left->width;
		if (right) {
			right->x = end + GAP;
			right->y = y;
			right->height = height;
			end = right->x + right->width;
		}
		width = end > width ? end : width;
		y += height + GAP;
	}
	*ret_width = width + MARGIN;
	return y;
}

static void draw_group(const struct topo_view *view, size_t index, int y, int width, FILE *to)
{
	const struct wf_topo_group *group = &view->plan->groups[index];
	char memory[TOPO_TEXT], rate[TOPO_TEXT], cores[64], style[64];

	snprintf(style, sizeof(style), "fill=\"%s\"", colour_of((int)index));
	box(to, MARGIN + 2, y + 5, 16, 16, 4, style);
	text(to, MARGIN + 28, y + 18, "", 0, "group %zu", index);
	text(to, MARGIN + 100, y + 18, "", 150, "%s", topo_memory_text(view, group, memory));
	topo_rate_text(topo_group_bps(view, group), rate);
	text(to, MARGIN + 236, y + 18, "", 0, "%zu rail%s%s%s", group->rail_count, group->rail_count == 1 ? "" : "s",
	     *rate ? ", " : "", rate);
	if (wf_topo_cpus_text(group->cores, group->core_count, cores, sizeof(cores)) >= sizeof(cores))
		snprintf(cores, sizeof(cores), "%zu of them", group->core_count);
	if (group->worker >= 0)
		text(to, MARGIN + 386, y + 18, "", 0, "cores %s, worker on %d", cores, group->worker);
	text(to, MARGIN + 590, y + 18, "class=\"small\" fill=\"#5b6472\"", (width - MARGIN * 2 - 590) * 7 / 6, "%s",
	     group->reason);
}

static void draw_headings(int y, FILE *to)
{
	static const struct {
		int x;
		const char *name;
	} columns[] = { { 2, "group" }, { 100, "memory" }, { 236, "rails" }, { 386, "cores" }, { 590, "why" } };

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		text(to, MARGIN + columns[i].x, y + 14, "class=\"small\" fill=\"#5b6472\" font-weight=\"700\"", 0, "%s",
		     columns[i].name);
}

static void draw_head(const struct topo_view *view, int width, int height, FILE *to)
{
	const char *name = view->machine;
	char rate[TOPO_TEXT];

	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
		"fill=\"#1b2430\" font-family=\"Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n"
		"<style>text{font-size:12px}.title{font-size:24px;font-weight:700}"
		".head{font-size:15px;font-weight:700}.chip{font-size:13px;font-weight:700}.small{font-size:11px}"
		".tag{font-size:10px;font-weight:700;text-anchor:middle}"
		"</style>\n",
		width, height, width, height);
	box(to, 0, 0, width, height, 0, "fill=\"#fafbfc\"");
	text(to, MARGIN, 44, "class=\"title\"", 0, "%s%s", *name ? name : "this machine",
	     view->simulated ? " (simulated)" : "");
	topo_rate_text(view->bits_per_second, rate);
	text(to, MARGIN, 66, "fill=\"#5b6472\"", 0,
	     "%zu NIC%s%s%s  ·  %zu GPU%s  ·  %zu cores on %zu NUMA node%s  ·  %zu group%s, a worker on "
	     "the ringed core of each",
	     view->nic_count, view->nic_count == 1 ? "" : "s", *rate ? ", " : "", rate, view->gpu_count,
	     view->gpu_count == 1 ? "" : "s", view->core_count, view->node_count, view->node_count == 1 ? "" : "s",
	     view->plan->count, view->plan->count == 1 ? "" : "s");
}

void topo_print_svg(const struct topo_view *view, FILE *to)
{
	struct panel *panels = calloc(view->node_count + 1, sizeof(*panels));
	size_t count = view->node_count;
	int width, bottom, height;

	if (!panels)
		return;
	for (size_t n = 0; n < count; n++)
		panels[n] = (struct panel){ .numa = view->nodes[n].numa, .node = &view->nodes[n] };
	for (size_t p = 0; p < view->place_count; p++)
		if (view->places[p].numa < 0 && count == view->node_count)
			panels[count++] = (struct panel){ .numa = -1 };
	for (size_t i = 0; i < count; i++)
		measure(view, &panels[i]);
	bottom = arrange(panels, count, &width);
	width = width < 1100 ? 1100 : width;
	height = bottom + (int)(view->plan->count + 1) * ROW + MARGIN / 2;
	draw_head(view, width, height, to);
	for (size_t i = 0; i < count; i++)
		draw_panel(view, &panels[i], to);
	if (view->plan->count)
		draw_headings(bottom, to);
	for (size_t i = 0; i < view->plan->count; i++)
		draw_group(view, i, bottom + (int)(i + 1) * ROW - 4, width, to);
	fputs("</svg>\n", to);
	free(panels);
}
