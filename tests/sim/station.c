/* One adapter at a network of the simulator; see station.h. */
#include "station.h"

#include "adapter/adapter.h"
#include "place.h"

#define CONGESTED 3u
#define TURNS     64
#define STUCK_NS  1000u /* until the lines have room again, about */

static uint64_t line_ns(const struct station *station, size_t bytes)
{
	return bytes * 8 * 1000000000 / station->config.bandwidth_bps;
}

static bool room(void *context)
{
	const struct station *station = context;
	uint64_t most =
	        sim_now_ns(station->config.sim) + line_ns(station, station->config.room_bytes);
	return station->line_ns[0] < most && station->line_ns[1] < most;
}

void station_busy(struct station *station, uint32_t line, size_t bytes)
{
	uint64_t now = sim_now_ns(station->config.sim), *busy = &station->line_ns[line];
	*busy = (*busy > now ? *busy : now) + line_ns(station, bytes);
}

static void wake(struct sim *sim, void *context, uint64_t arg)
{
	struct station *station = context;
	(void)arg;
	if (sim_now_ns(sim) >= station->wake_ns)
		station_drive(station);
}

static void arrive(void *context, struct sim *sim, uint32_t index, uint32_t from,
                   const void *packet, size_t bytes)
{
	struct station *station = context;
	struct path came;
	const uint8_t *payload;
	size_t payload_bytes;
	(void)sim;
	(void)index;
	(void)from;
	if (!cable_unpack(packet, bytes, &came, &payload, &payload_bytes))
		return;
	adapter_take(station->adapter, &came, (came.ip.traffic_class & CONGESTED) == CONGESTED,
	             payload, payload_bytes);
	station_drive(station);
}

void station_drive(struct station *station)
{
	struct sim *sim = station->config.sim;
	for (int turns = 0; turns < TURNS && hdl_progress(station->adapter) > 0; turns++)
		;
	station->config.collect(station);
	hdl_progress(station->adapter);
	adapter_lock(station->adapter);
	uint64_t next = engine_next_tick(&station->adapter->engine), now = sim_now_ns(sim);
	if (engine_stuck(&station->adapter->engine))
		next = now + STUCK_NS;
	adapter_unlock(station->adapter);
	if (next <= now)
		next = now + 1;
	if (next == UINT64_MAX || (station->wake_ns > now && station->wake_ns <= next))
		return;
	station->wake_ns = next;
	sim_at(sim, next, wake, station, station->config.index);
}

bool station_open(struct station *station, const struct station_config *config)
{
	struct hdl_open_attr attr = {.max_qp = config->max_qp,
	                             .max_mr = config->max_mr != 0 ? config->max_mr : 16,
	                             .no_thread = true,
	                             .gid = config->gids[0]};
	struct adapter_env env = {.clock = sim_clock(config->sim),
	                          .seed = config->seed,
	                          .carrier = &station->cable.carrier,
	                          .cells = config->cells,
	                          .second_gid = config->gids[1]};
	*station = (struct station){.config = *config};
	cable_init(&station->cable, config->out, room, station);
	station->memory = place_take(config->index, config->memory_bytes);
	if (station->memory == NULL || adapter_open(&attr, &env, &station->adapter) != 0)
		return false;
	uint32_t access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ |
	                  HDL_ACCESS_REMOTE_WRITE;
	return hdl_pd_create(station->adapter, &station->pd) == 0 &&
	       hdl_cq_create(station->adapter, config->cq_entries, NULL, NULL, &station->cq) == 0 &&
	       hdl_mr_register(station->pd, station->memory, config->memory_bytes, access,
	                       &station->mr) == 0;
}

void station_attach(struct station *station, uint32_t host)
{
	const struct sim_host_ops ops = {.receive = arrive};
	sim_host_attach(station->config.sim, host, &ops, station);
}

struct hdl_qp *station_qp(struct station *station, uint32_t depth)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = station->cq,
	                                .recv_cq = station->cq,
	                                .cap = {depth, depth, 1, 1, 0}};
	return hdl_qp_create(station->pd, &init, &qp) == 0 ? qp : NULL;
}

bool station_connect(struct hdl_qp *qp, struct hdl_qp_attr attr, uint32_t on_ready,
                     uint32_t on_send)
{
	attr.state = HDL_QPS_INIT;
	if (hdl_qp_modify(qp, &attr,
	                  HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS) != 0)
		return false;
	attr.state = HDL_QPS_RTR;
	if (hdl_qp_modify(qp, &attr,
	                  HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                          HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER |
	                          on_ready) != 0)
		return false;
	attr.state = HDL_QPS_RTS;
	return hdl_qp_modify(qp, &attr,
	                     HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                             HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC | on_send) == 0;
}

void station_close(struct station *station)
{
	if (station->mr != NULL)
		hdl_mr_deregister(station->mr);
	if (station->cq != NULL)
		hdl_cq_destroy(station->cq);
	if (station->pd != NULL)
		hdl_pd_destroy(station->pd);
	if (station->adapter != NULL)
		hdl_close(station->adapter);
	place_give(station->memory, station->config.memory_bytes);
}
