/* A drawing of a topology. Columns are the distance from the first node in links; links are lines
 * with the port numbers at their ends, parallel ones bent apart. Sizes are whole pixels. */
#include <assert.h>
#include <string.h>

#include "fabric/text.h"
#include "fabric/topology_map.h"

#define COLUMN_PIXELS 240
#define ROW_PIXELS    80
#define BOX_WIDTH     120
#define BOX_HEIGHT    36
#define MARGIN        60
#define BEND_PIXELS   40

struct place {
	int x, y;
};

struct drawing {
	const struct topology *topology;
	struct text *text;
	struct place places[TOPOLOGY_MAX_NODES];
	int width, height;
};

/* The distance of every node from the first one; those that no link leads to are in a column of
 * their own, the last. Returns how many columns there are. */
static unsigned find_columns(const struct topology *topology, uint16_t column[TOPOLOGY_MAX_NODES])
{
	unsigned last = 0;
	bool grown = true, apart = false;
	for (uint32_t i = 0; i < topology->node_count; i++)
		column[i] = i == 0 ? 0 : UINT16_MAX;
	for (unsigned depth = 0; grown; depth++) {
		grown = false;
		for (uint32_t i = 0; i < topology->link_count; i++)
			for (unsigned side = 0; side < 2; side++) {
				const struct topology_end *ends = topology->links[i].ends;
				if (column[ends[side].node] == depth &&
				    column[ends[!side].node] == UINT16_MAX) {
					column[ends[!side].node] = (uint16_t)(depth + 1);
					last = depth + 1;
					grown = true;
				}
			}
	}
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (column[i] == UINT16_MAX) {
			column[i] = (uint16_t)(last + 1);
			apart = true;
		}
	return last + 1 + apart;
}

static void place_nodes(struct drawing *drawing)
{
	uint16_t column[TOPOLOGY_MAX_NODES], rows[TOPOLOGY_MAX_NODES + 1] = {0};
	const struct topology *topology = drawing->topology;
	unsigned columns = find_columns(topology, column), most = 0;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		rows[column[i]]++;
		if (rows[column[i]] > most)
			most = rows[column[i]];
	}
	drawing->width = 2 * MARGIN + BOX_WIDTH + (int)(columns - 1) * COLUMN_PIXELS;
	drawing->height = 2 * MARGIN + (int)most * ROW_PIXELS;
	uint16_t used[TOPOLOGY_MAX_NODES + 1] = {0};
	for (uint32_t i = 0; i < topology->node_count; i++) {
		int free_rows = (int)(most - rows[column[i]]);
		drawing->places[i].x = MARGIN + BOX_WIDTH / 2 + column[i] * COLUMN_PIXELS;
		/* Every second node a little to the side, so that a line between two of one column
		 * does not run through the one between them. */
		drawing->places[i].x += used[column[i]] % 2 * (BOX_WIDTH / 3);
		drawing->places[i].y = MARGIN + ROW_PIXELS / 2 + free_rows * ROW_PIXELS / 2 +
		                       used[column[i]] * ROW_PIXELS;
		used[column[i]]++;
	}
}

static void add_int(struct text *text, int number)
{
	if (number < 0)
		text_add(text, "-");
	text_add_number(text, (uint64_t)(number < 0 ? -number : number));
}

static void add_attribute(struct text *text, const char *name, int number)
{
	text_add(text, " ");
	text_add(text, name);
	text_add(text, "=\"");
	add_int(text, number);
	text_add(text, "\"");
}

static void add_point(struct text *text, const char *before, struct place at)
{
	text_add(text, before);
	add_int(text, at.x);
	text_add(text, " ");
	add_int(text, at.y);
}

/* How many links before @link join the same two nodes. */
static int parallel_before(const struct topology *topology, uint32_t link)
{
	const struct topology_end *ends = topology->links[link].ends;
	int count = 0;
	for (uint32_t i = 0; i < link; i++) {
		const struct topology_end *other = topology->links[i].ends;
		if ((other[0].node == ends[0].node && other[1].node == ends[1].node) ||
		    (other[0].node == ends[1].node && other[1].node == ends[0].node))
			count++;
	}
	return count;
}

/* A point of the curve from @a to @b that is bent toward @bend, @part hundredths along it. */
static struct place curve_at(struct place a, struct place bend, struct place b, int part)
{
	int rest = 100 - part;
	return (struct place){
	        .x = (rest * rest * a.x + 2 * rest * part * bend.x + part * part * b.x) / 10000,
	        .y = (rest * rest * a.y + 2 * rest * part * bend.y + part * part * b.y) / 10000};
}

static void draw_port(struct text *text, struct place at, uint8_t port)
{
	text_add(text, "<text class=\"port\"");
	add_attribute(text, "x", at.x);
	add_attribute(text, "y", at.y + 4);
	text_add(text, ">");
	text_add_number(text, port);
	text_add(text, "</text>\n");
}

static void draw_link(struct drawing *drawing, uint32_t link)
{
	const struct topology_end *ends = drawing->topology->links[link].ends;
	struct place a = drawing->places[ends[0].node], b = drawing->places[ends[1].node];
	int turn = parallel_before(drawing->topology, link);
	int shift = (turn + 1) / 2 * BEND_PIXELS * (turn % 2 ? 1 : -1);
	struct place bend = {.x = (a.x + b.x) / 2 + (a.x == b.x ? shift : 0),
	                     .y = (a.y + b.y) / 2 + (a.x == b.x ? 0 : 2 * shift)};
	if (ends[0].node == ends[1].node) { /* a loop below the box */
		a.x -= BOX_WIDTH / 3;
		b.x += BOX_WIDTH / 3;
		bend = (struct place){.x = (a.x + b.x) / 2,
		                      .y = a.y + BOX_HEIGHT * 3 + turn * BEND_PIXELS};
	}
	text_add(drawing->text, "<path class=\"link\" d=\"");
	add_point(drawing->text, "M", a);
	add_point(drawing->text, " Q", bend);
	add_point(drawing->text, " ", b);
	text_add(drawing->text, "\"/>\n");
	draw_port(drawing->text, curve_at(a, bend, b, 33), ends[0].port);
	draw_port(drawing->text, curve_at(a, bend, b, 67), ends[1].port);
}

/* The ports that lead nowhere: not used, or cut. */
static void draw_unlinked(struct drawing *drawing, uint32_t node)
{
	struct place place = drawing->places[node];
	unsigned end, count = 0;
	for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++) {
		if ((drawing->topology->nodes[node].ports >> port & 1) == 0 ||
		    topology_link_at(drawing->topology, node, port, &end) >= 0)
			continue;
		if (count++ == 0) {
			text_add(drawing->text, "<text class=\"unlinked\"");
			add_attribute(drawing->text, "x", place.x);
			add_attribute(drawing->text, "y", place.y + 13);
			text_add(drawing->text, ">no link:");
		}
		text_add(drawing->text, " ");
		text_add_number(drawing->text, port);
	}
	if (count > 0)
		text_add(drawing->text, "</text>\n");
}

static void draw_node(struct drawing *drawing, uint32_t node)
{
	const struct topology_node *at = &drawing->topology->nodes[node];
	struct place place = drawing->places[node];
	text_add(drawing->text, at->plain ? "<rect class=\"switch\"" : "<rect class=\"node\"");
	add_attribute(drawing->text, "x", place.x - BOX_WIDTH / 2);
	add_attribute(drawing->text, "y", place.y - BOX_HEIGHT / 2);
	add_attribute(drawing->text, "width", BOX_WIDTH);
	add_attribute(drawing->text, "height", BOX_HEIGHT);
	text_add(drawing->text, at->plain ? "/>\n" : " rx=\"12\"/>\n");
	text_add(drawing->text, "<text");
	add_attribute(drawing->text, "x", place.x);
	add_attribute(drawing->text, "y", place.y);
	text_add(drawing->text, ">");
	text_add(drawing->text, at->name); /* letters, digits, '.', '_', '-' */
	text_add(drawing->text, "</text>\n");
	draw_unlinked(drawing, node);
}

size_t topology_svg(const struct topology *topology, char *out, size_t capacity)
{
	struct text text = text_begin(out, capacity);
	struct drawing drawing = {.topology = topology, .text = &text};
	assert(topology->node_count > 0);
	place_nodes(&drawing);
	text_add(&text, "<svg xmlns=\"http://www.w3.org/2000/svg\"");
	add_attribute(&text, "width", drawing.width);
	add_attribute(&text, "height", drawing.height);
	text_add(&text, ">\n<style>\n"
	                "text { font: 14px sans-serif; text-anchor: middle; }\n"
	                ".port { font-size: 11px; stroke: #ffffff; stroke-width: 4px; "
	                "paint-order: stroke; }\n"
	                ".link { fill: none; stroke: #5a6570; stroke-width: 2px; }\n"
	                ".unlinked { font-size: 10px; fill: #a03020; }\n"
	                ".node { fill: #d7ecd9; stroke: #2c6e34; }\n"
	                ".switch { fill: #dbe6f4; stroke: #2b4f81; }\n"
	                "</style>\n"
	                "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
	for (uint32_t i = 0; i < topology->link_count; i++)
		draw_link(&drawing, i);
	for (uint32_t i = 0; i < topology->node_count; i++)
		draw_node(&drawing, i);
	text_add(&text, "</svg>\n");
	return text_fits(&text) ? text.length : 0;
}
