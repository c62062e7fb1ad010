/* Writes a capture of iWARP connections that our encoders made, for a dissector that nobody here
 * wrote to read (see iwarp_tshark.py): TCP over IPv4 with handshakes and checksums, one FPDU a
 * segment. What each frame must show goes to standard output, one line a field: frame number, tab,
 * field, tab, value.
 *
 * 	iwarp_capture FILE */
#include "wire/be.h"
#include "wire/mpa_connect.h"
#include "wire/mpa_fpdu.h"
#include "wire/rdmap.h"
#include "wire/rdmap_terminate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENT, SERVER };

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_PSH 0x08
#define TCP_ACK 0x10

#define HEADERS_BYTES (14 + 20 + 20)

static FILE *capture;
static unsigned frames;
static uint16_t ports[2] = {21000, 21500};
static uint32_t sequence[2];
static struct mpa_sender senders[2];
static uint32_t next_msn[2][RDMAP_QUEUE_COUNT];

static void expect(const char *field, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void expect(const char *field, const char *format, ...)
{
	__builtin_va_list list;
	__builtin_va_start(list, format);
	printf("%u\t%s\t", frames, field);
	vprintf(format, list);
	putchar('\n');
	__builtin_va_end(list);
}

static void expect_octets(const char *field, const uint8_t *data, size_t bytes)
{
	printf("%u\t%s\t", frames, field);
	for (size_t i = 0; i < bytes; i++)
		printf("%02x", data[i]);
	putchar('\n');
}

static uint32_t add_octets(uint32_t sum, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void write_host32(uint32_t v)
{
	fwrite(&v, sizeof(v), 1, capture);
}

/* One TCP segment from @from. */
static void segment(int from, uint8_t flags, const uint8_t *data, size_t bytes)
{
	static const uint8_t addresses[2][4] = {{10, 1, 1, 1}, {10, 1, 1, 2}};
	static uint8_t packet[HEADERS_BYTES + MPA_MAX_FPDU_BYTES];
	uint8_t *ip = packet + 14;
	uint8_t *tcp = ip + 20;
	memset(packet, 0, HEADERS_BYTES);
	packet[5] = from == CLIENT ? 2 : 1;
	packet[11] = from == CLIENT ? 1 : 2;
	be16_store(packet + 12, 0x0800);
	ip[0] = 0x45;
	be16_store(ip + 2, (uint16_t)(40 + bytes));
	ip[6] = 0x40;
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, addresses[from], 4);
	memcpy(ip + 16, addresses[!from], 4);
	be16_store(ip + 10, fold(add_octets(0, ip, 20)));
	be16_store(tcp, ports[from]);
	be16_store(tcp + 2, ports[!from]);
	be32_store(tcp + 4, sequence[from]);
	be32_store(tcp + 8, flags & TCP_ACK ? sequence[!from] : 0);
	tcp[12] = 0x50;
	tcp[13] = flags;
	be16_store(tcp + 14, 65535);
	if (bytes > 0)
		memcpy(tcp + 20, data, bytes);
	uint32_t sum = add_octets(0, ip + 12, 8) + 6 + (uint32_t)(20 + bytes);
	be16_store(tcp + 16, fold(add_octets(sum, tcp, 20 + bytes)));

	frames++;
	write_host32(frames / 1000);
	write_host32(frames % 1000 * 1000);
	write_host32((uint32_t)(HEADERS_BYTES + bytes));
	write_host32((uint32_t)(HEADERS_BYTES + bytes));
	fwrite(packet, 1, HEADERS_BYTES + bytes, capture);
	sequence[from] += (uint32_t)bytes + (flags & (TCP_SYN | TCP_FIN) ? 1 : 0);
}

static void connect_frame(int from, const struct mpa_connect *c)
{
	uint8_t out[MPA_CONNECT_MAX_BYTES];
	size_t bytes = mpa_connect_encode(c, out, sizeof(out));
	if (bytes == 0)
		abort();
	segment(from, TCP_ACK | TCP_PSH, out, bytes);
	expect(c->frame == MPA_REQUEST ? "iwarp_mpa.key.req" : "iwarp_mpa.key.rep", "%s",
	       c->frame == MPA_REQUEST ? "4d504120494420526571204672616d65"
	                               : "4d504120494420526570204672616d65");
	expect("iwarp_mpa.marker_flag", "%d", c->markers);
	expect("iwarp_mpa.crc_flag", "%d", c->crc);
	expect("iwarp_mpa.rej_flag", "%d", c->reject);
	expect("iwarp_mpa.rev", "%d", c->revision);
	expect("iwarp_mpa.pdlength", "%zu", bytes - MPA_CONNECT_HEADER_BYTES);
	if (bytes > MPA_CONNECT_HEADER_BYTES)
		expect_octets("iwarp_mpa.privatedata", out + MPA_CONNECT_HEADER_BYTES,
		              bytes - MPA_CONNECT_HEADER_BYTES);
}

static void expect_read_request(const struct rdmap_read_request *r)
{
	expect("iwarp_rdma.sinkstag", "%" PRIu32, r->sink_stag);
	expect("iwarp_rdma.sinkto", "%" PRIu64, r->sink_to);
	expect("iwarp_rdma.rdmardsz", "%" PRIu32, r->bytes);
	expect("iwarp_rdma.srcstag", "%" PRIu32, r->source_stag);
	expect("iwarp_rdma.srcto", "%" PRIu64, r->source_to);
}

/* tshark knows no Swap (operation 1) and shows its last two words elsewhere, so of that only what
 * comes before. */
static void expect_atomic_request(const struct rdmap_atomic_request *a)
{
	bool add = a->operation == RDMAP_FETCH_ADD;
	expect("iwarp_rdma.atomic.opcode", "%d", (int)a->operation);
	expect("iwarp_rdma.atomic.request_identifier", "%" PRIu32, a->id);
	expect("iwarp_rdma.atomic.remote_stag", "%" PRIu32, a->stag);
	expect("iwarp_rdma.atomic.remote_tagged_offset", "%" PRIu64, a->to);
	if (a->operation == RDMAP_SWAP)
		return;
	expect(add ? "iwarp_rdma.atomic.add_data" : "iwarp_rdma.atomic.swap_data", "%" PRIu64,
	       a->data);
	expect(add ? "iwarp_rdma.atomic.add_mask" : "iwarp_rdma.atomic.swap_mask", "%" PRIu64,
	       a->mask);
	expect("iwarp_rdma.atomic.compare_data", "%" PRIu64, a->compare);
	expect("iwarp_rdma.atomic.compare_mask", "%" PRIu64, a->compare_mask);
}

static void expect_terminate(const struct rdmap_terminate *t)
{
	static const char *const etypes[] = {"iwarp_rdma.term_etype_rdma",
	                                     "iwarp_rdma.term_etype_ddp",
	                                     "iwarp_rdma.term_etype_llp"};
	expect("iwarp_rdma.term_layer", "%d", t->layer);
	expect(etypes[t->layer], "%d", t->etype);
	if (t->layer == RDMAP_LAYER_RDMAP)
		expect(t->etype ? "iwarp_rdma.term_errcode_rdma" : "iwarp_rdma.term_errcode", "%d",
		       t->code);
	else if (t->layer == RDMAP_LAYER_LLP)
		expect("iwarp_rdma.term_errcode_llp", "%d", t->code);
	else if (t->etype != 0)
		expect(t->etype == 1 ? "iwarp_rdma.term_errcode_ddp_tagged"
		                     : "iwarp_rdma.term_errcode_ddp_untagged",
		       "%d", t->code);
	else
		expect("iwarp_rdma.term_errcode", "%d", t->code);
	expect("iwarp_rdma.term_hdrct_m", "%d", t->has_length);
	expect("iwarp_rdma.hdrct_d", "%d", t->ddp_header != NULL);
	expect("iwarp_rdma.hdrct_r", "%d", t->rdmap_header != NULL);
	if (t->ddp_header == NULL)
		return;
	uint8_t length[2];
	be16_store(length, t->segment_bytes);
	expect_octets("iwarp_rdma.term_ddp_seg_len", length, 2);
	/* tshark takes the terminated header to be tagged when EType is 1, whatever the layer. */
	if ((t->etype == 1) == (t->ddp_header_bytes == DDP_TAGGED_BYTES)) {
		expect_octets("iwarp_rdma.term_ddp_h", t->ddp_header, t->ddp_header_bytes);
		if (t->rdmap_header_bytes == RDMAP_READ_REQUEST_BYTES)
			expect_octets("iwarp_rdma.term_rdma_h", t->rdmap_header,
			              t->rdmap_header_bytes);
	}
}

static void expect_body(const struct rdmap_segment *s)
{
	switch (s->opcode) {
	case RDMAP_READ_REQUEST:
		expect_read_request(&s->u.read);
		break;
	case RDMAP_ATOMIC_REQUEST:
		expect_atomic_request(&s->u.atomic);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		expect("iwarp_rdma.atomic.original_request_identifier", "%" PRIu32,
		       s->u.atomic_response.id);
		expect("iwarp_rdma.atomic.original_remote_data_value", "%" PRIu64,
		       s->u.atomic_response.original);
		break;
	case RDMAP_TERMINATE:
		expect_terminate(&s->u.terminate);
		break;
	default:
		break;
	}
}

/* Send @s with @payload_bytes of payload and say what it must look like. */
static void message(int from, struct rdmap_segment s, size_t payload_bytes)
{
	static uint8_t payload[MPA_MAX_ULPDU_BYTES];
	static uint8_t out[MPA_MAX_FPDU_BYTES];
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	const struct rdmap_operation *op = &rdmap_operations[s.opcode];
	for (size_t i = 0; i < payload_bytes; i++)
		payload[i] = (uint8_t)(i * 7 + frames);
	if (!op->tagged && s.mo == 0)
		s.msn = ++next_msn[from][op->queue];
	else if (!op->tagged)
		s.msn = next_msn[from][op->queue];
	size_t header_bytes = rdmap_encode(&s, header, sizeof(header));
	struct mpa_piece pieces[] = {
	        {header, header_bytes},
	        {payload, payload_bytes / 3},
	        {payload + payload_bytes / 3, payload_bytes - payload_bytes / 3}};
	uint64_t position = senders[from].position;
	size_t bytes = mpa_fpdu_encode(&senders[from], pieces, 3, out, sizeof(out));
	if (header_bytes == 0 || bytes == 0)
		abort();
	segment(from, TCP_ACK | TCP_PSH, out, bytes);

	size_t ulpdu_bytes = header_bytes + payload_bytes;
	expect("iwarp_mpa.ulpdulength", "%zu", ulpdu_bytes);
	if (mpa_pad_bytes(ulpdu_bytes) > 0)
		expect_octets("iwarp_mpa.pad", (const uint8_t[3]){0}, mpa_pad_bytes(ulpdu_bytes));
	expect(senders[from].crc ? "crc good" : "crc unused", "1");
	if (senders[from].markers) {
		uint64_t first = (position + MPA_MARKER_INTERVAL - 1) / MPA_MARKER_INTERVAL *
		                 MPA_MARKER_INTERVAL;
		uint64_t start = first == position ? position + MPA_MARKER_BYTES : position;
		for (uint64_t m = first; m < position + bytes; m += MPA_MARKER_INTERVAL)
			expect("iwarp_mpa.marker_fpduptr", "%" PRIu64,
			       m == position ? 0 : m - start);
	}
	expect("iwarp_ddp.tagged_flag", "%d", op->tagged);
	expect("iwarp_ddp.last_flag", "%d", s.last || !op->payload);
	expect("iwarp_ddp.dv", "1");
	expect("iwarp_rdma.version", "1");
	expect("iwarp_rdma.opcode", "%d", (int)s.opcode);
	if (op->tagged) {
		expect("iwarp_ddp.stag", "%" PRIu32, s.stag);
		expect("iwarp_ddp.tagged_offset", "%" PRIu64, s.to);
	} else {
		expect("iwarp_ddp.qn", "%d", op->queue);
		expect("iwarp_ddp.msn", "%" PRIu32, s.msn);
		expect("iwarp_ddp.mo", "%" PRIu32, s.mo);
	}
	if (op->invalidates)
		expect("iwarp_rdma.inval_stag", "%" PRIu32, s.invalidate_stag);
	/* tshark takes markers for 512 octets apart without counting them, so a payload behind two
	 * comes out wrong. */
	if (op->tagged && payload_bytes > 0 && !senders[from].markers)
		expect_octets("data.data", payload, payload_bytes);
	expect_body(&s);
}

static void open_tcp(void)
{
	ports[CLIENT]++;
	sequence[CLIENT] = 0xfffffd00u; /* wraps early */
	sequence[SERVER] = 1000;
	memset(next_msn, 0, sizeof(next_msn));
	segment(CLIENT, TCP_SYN, NULL, 0);
	segment(SERVER, TCP_SYN | TCP_ACK, NULL, 0);
	segment(CLIENT, TCP_ACK, NULL, 0);
}

static void close_tcp(void)
{
	segment(CLIENT, TCP_FIN | TCP_ACK, NULL, 0);
	segment(SERVER, TCP_FIN | TCP_ACK, NULL, 0);
	segment(CLIENT, TCP_ACK, NULL, 0);
}

static void terminate(int from, enum rdmap_error error, const uint8_t *about, size_t about_bytes)
{
	struct rdmap_segment s = {.opcode = RDMAP_TERMINATE};
	rdmap_terminate_make(error, about, about_bytes, &s.u.terminate);
	message(from, s, 0);
}

/* Every message of RFC 5040 and RFC 7306 once each way, with payloads of @large octets. */
static void every_message(size_t large)
{
	for (int from = CLIENT; from <= SERVER; from++) {
		for (int op = RDMAP_SEND; op <= RDMAP_SEND_SE_INVALIDATE; op++) {
			struct rdmap_segment s = {.opcode = (enum rdmap_opcode)op,
			                          .invalidate_stag = 0x8badf00du + (uint32_t)op};
			message(from, s, large);
			s.mo = (uint32_t)large;
			s.last = true;
			message(from, s, 5 + (size_t)op);
		}
		message(from, (struct rdmap_segment){.opcode = RDMAP_SEND, .last = true}, 0);
		struct rdmap_segment write = {
		        .opcode = RDMAP_WRITE, .stag = 0xcafe0001u, .to = 0xfedcba9876543210u};
		message(from, write, large);
		write.to += large;
		write.last = true;
		message(from, write, 1);
		struct rdmap_read_request read = {0x11223344, 0x0102030405060708u, 0x87654321u,
		                                  0xa1b2c3d4u, 0x8877665544332211u};
		message(from, (struct rdmap_segment){.opcode = RDMAP_READ_REQUEST, .u.read = read},
		        0);
		message(!from,
		        (struct rdmap_segment){.opcode = RDMAP_READ_RESPONSE,
		                               .last = true,
		                               .stag = read.sink_stag,
		                               .to = read.sink_to},
		        large);
		message(from,
		        (struct rdmap_segment){.opcode = RDMAP_IMMEDIATE,
		                               .u.immediate = 0x0011223344556677u},
		        0);
		message(from,
		        (struct rdmap_segment){.opcode = RDMAP_IMMEDIATE_SE, .u.immediate = 1}, 0);
		for (int op = 0; op < RDMAP_ATOMIC_COUNT; op++) {
			struct rdmap_atomic_request a = {
			        .operation = (enum rdmap_atomic)op,
			        .id = 0xdead0000u + (uint32_t)op,
			        .stag = 77,
			        .to = 0x1000,
			        .data = 0x1111111122222222u,
			        .mask = UINT64_MAX,
			        .compare = op == RDMAP_COMPARE_SWAP ? 3 : 0,
			        .compare_mask = op == RDMAP_COMPARE_SWAP ? 0xffff : 0};
			message(from,
			        (struct rdmap_segment){.opcode = RDMAP_ATOMIC_REQUEST,
			                               .u.atomic = a},
			        0);
			message(!from,
			        (struct rdmap_segment){
			                .opcode = RDMAP_ATOMIC_RESPONSE,
			                .u.atomic_response = {a.id, 42 + (uint64_t)op}},
			        0);
		}
	}
}

static void every_terminate(void)
{
	uint8_t read[RDMAP_MAX_HEADER_BYTES];
	uint8_t write[RDMAP_MAX_HEADER_BYTES];
	struct rdmap_segment r = {
	        .opcode = RDMAP_READ_REQUEST, .msn = 9, .u.read = {1, 2, 3, 4, 5}};
	struct rdmap_segment w = {.opcode = RDMAP_WRITE, .last = true, .stag = 6, .to = 7};
	size_t read_bytes = rdmap_encode(&r, read, sizeof(read));
	size_t write_bytes = rdmap_encode(&w, write, sizeof(write));
	for (int e = 0; e < RDMAP_ERROR_COUNT; e++) {
		terminate(CLIENT, (enum rdmap_error)e, read, read_bytes);
		/* tshark reads 18 octets of DDP header when EType is not 1, tagged or not. */
		if (rdmap_errors[e].etype == 1)
			terminate(SERVER, (enum rdmap_error)e, write, write_bytes);
	}
}

static void connection(const struct mpa_offer *client, const struct mpa_offer *server,
                       bool enhanced, const char *private_data, size_t large)
{
	open_tcp();
	struct mpa_connect request = {
	        .frame = MPA_REQUEST,
	        .revision = enhanced ? 2 : 1,
	        .markers = client->markers,
	        .crc = client->crc,
	        .enhanced = enhanced,
	        .peer_to_peer = enhanced,
	        .rtr = enhanced ? client->rtr : 0,
	        .ird = enhanced ? client->max_ird : 0,
	        .ord = enhanced ? client->max_ord : 0,
	        .private_data = (const uint8_t *)private_data,
	        .private_bytes = strlen(private_data),
	};
	connect_frame(CLIENT, &request);
	struct mpa_connect reply;
	struct mpa_agreement agreement;
	if (mpa_connect_answer(&request, server, &reply, &agreement) != MPA_CONNECT_OK)
		abort();
	reply.private_data = (const uint8_t *)"welcome";
	reply.private_bytes = private_data[0] ? 7 : 0;
	connect_frame(SERVER, &reply);
	senders[SERVER] = (struct mpa_sender){0, agreement.send_markers, agreement.crc};
	senders[CLIENT] = (struct mpa_sender){0, agreement.receive_markers, agreement.crc};
	every_message(large);
	every_terminate();
	close_tcp();
}

static void rejected(void)
{
	open_tcp();
	struct mpa_connect request = {.frame = MPA_REQUEST, .revision = 1, .crc = true};
	struct mpa_connect reply = {.frame = MPA_REPLY,
	                            .revision = 1,
	                            .crc = true,
	                            .reject = true,
	                            .private_data = (const uint8_t *)"no",
	                            .private_bytes = 2};
	connect_frame(CLIENT, &request);
	connect_frame(SERVER, &reply);
	close_tcp();
}

int main(int argc, char **argv)
{
	capture = argc == 2 ? fopen(argv[1], "wb") : NULL;
	if (capture == NULL) {
		fprintf(stderr, "usage: iwarp_capture FILE\n");
		return 1;
	}
	write_host32(0xa1b2c3d4u);
	write_host32(4u << 16 | 2);
	write_host32(0);
	write_host32(0);
	write_host32(262144);
	write_host32(1); /* Ethernet */

	struct mpa_offer plain = {.max_ird = 8, .max_ord = 8, .rtr = MPA_RTR_ALL};
	struct mpa_offer crc = plain;
	struct mpa_offer marked = plain;
	crc.crc = true;
	marked.crc = true;
	marked.markers = true;
	connection(&crc, &plain, false, "hello", 1000);
	connection(&plain, &plain, false, "", 100);
	connection(&crc, &crc, true, "more than four octets", 40000);
	connection(&marked, &marked, true, "", 400);
	connection(&marked, &marked, false, "x", 3001);
	rejected();
	return fclose(capture) == 0 ? 0 : 1;
}
