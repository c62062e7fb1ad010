/* A program for MPI that knows nothing of Heddle: every rank computes what it must have received
 * and counts what differs. Messages of all the kinds of a transport (inline, copied, by
 * rendezvous), collective operations, and one-sided ones on a window. The root prints "ok" and how
 * many checks there were, or every rank says what was wrong. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20
#define BIG    (1 << 20) /* bytes */

static int rank, size, wrong, checks;

static void check(int condition, const char *what, int a, int b)
{
	checks++;
	if (!condition && wrong++ < 10)
		fprintf(stderr, "rank %d: %s (%d, %d)\n", rank, what, a, b);
}

static int32_t value(int from, int to, int i)
{
	return from * 1000003 + to * 10007 + i * 17;
}

static int32_t *numbers(int count)
{
	int32_t *list = malloc((size_t)count * sizeof(*list));
	if (list == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(list, 0xee, (size_t)count * sizeof(*list));
	return list;
}

static void ring(void)
{
	static const int counts[] = {1, 2, 15, 16, 255, 1024, 2048, 5000, 30000, BIG / 4};
	int32_t *out = numbers(BIG / 4), *in = numbers(BIG / 4);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (int round = 0; round < 3; round++) {
			for (int i = 0; i < counts[c]; i++)
				out[i] = value(rank, round, i);
			MPI_Sendrecv(out, counts[c], MPI_INT32_T, next, 5, in, counts[c],
			             MPI_INT32_T, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			int bad = 0;
			for (int i = 0; i < counts[c]; i++)
				bad += in[i] != value(last, round, i);
			check(bad == 0, "ring", counts[c], bad);
		}
	free(out);
	free(in);
}

/* All to all at once, with messages that nobody waits for yet. */
static void unexpected(void)
{
	enum { EACH = 32, WORDS = 600 };
	MPI_Request requests[EACH * 16];
	int32_t *out = numbers(EACH * size * WORDS), *in = numbers(EACH * WORDS);
	int pending = 0;
	for (int to = 0; to < size; to++)
		for (int m = 0; m < EACH; m++) {
			int32_t *at = out + (to * EACH + m) * WORDS;
			for (int i = 0; i < WORDS; i++)
				at[i] = value(rank, to, m + i);
			MPI_Isend(at, WORDS, MPI_INT32_T, to, m, MPI_COMM_WORLD,
			          &requests[pending++]);
		}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int from = size - 1; from >= 0; from--)
		for (int m = EACH - 1; m >= 0; m--) {
			int bad = 0;
			MPI_Recv(in, WORDS, MPI_INT32_T, from, m, MPI_COMM_WORLD,
			         MPI_STATUS_IGNORE);
			for (int i = 0; i < WORDS; i++)
				bad += in[i] != value(from, rank, m + i);
			check(bad == 0, "unexpected", from, m);
		}
	MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE);
	free(out);
	free(in);
}

static void reduce(int count)
{
	int32_t *out = numbers(count), *in = numbers(count);
	for (int i = 0; i < count; i++)
		out[i] = value(rank, 0, i);
	MPI_Request request;
	MPI_Allreduce(out, in, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
	for (int pass = 0; pass < 2; pass++) {
		int bad = 0;
		for (int i = 0; i < count; i++) {
			int32_t sum = 0;
			for (int r = 0; r < size; r++)
				sum += value(r, 0, i);
			bad += in[i] != sum;
		}
		check(bad == 0, "allreduce", count, bad);
		memset(in, 0, (size_t)count * sizeof(*in));
		MPI_Iallreduce(out, in, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Scan(out, in, count, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD);
	check(in[count - 1] == value(rank, 0, count - 1), "scan", count, in[count - 1]);
	free(out);
	free(in);
}

static void all_to_all(int count)
{
	int32_t *out = numbers(count * size), *in = numbers(count * size);
	for (int to = 0; to < size; to++)
		for (int i = 0; i < count; i++)
			out[to * count + i] = value(rank, to, i);
	MPI_Alltoall(out, count, MPI_INT32_T, in, count, MPI_INT32_T, MPI_COMM_WORLD);
	int bad = 0;
	for (int from = 0; from < size; from++)
		for (int i = 0; i < count; i++)
			bad += in[from * count + i] != value(from, rank, i);
	check(bad == 0, "alltoall", count, bad);

	MPI_Allgather(out, count, MPI_INT32_T, in, count, MPI_INT32_T, MPI_COMM_WORLD);
	bad = 0;
	for (int from = 0; from < size; from++)
		for (int i = 0; i < count; i++)
			bad += in[from * count + i] != value(from, 0, i);
	check(bad == 0, "allgather", count, bad);

	int root = count % size;
	MPI_Bcast(out, count * size, MPI_INT32_T, root, MPI_COMM_WORLD);
	bad = 0;
	for (int to = 0; to < size; to++)
		for (int i = 0; i < count; i++)
			bad += out[to * count + i] != value(root, to, i);
	check(bad == 0, "bcast", count, bad);
	free(out);
	free(in);
}

/* Between fences: everybody puts into the next one's window and gets from the last one's. */
static void fenced(int count)
{
	int32_t *window, *got = numbers(count), *out = numbers(count);
	MPI_Win win;
	MPI_Win_allocate((MPI_Aint)count * 8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	int next = (rank + 1) % size, last = (rank + size - 1) % size, bad = 0;
	for (int i = 0; i < count; i++) {
		window[i] = -1;
		window[count + i] = value(rank, 7, i);
		out[i] = value(rank, 3, i);
	}
	MPI_Win_fence(0, win);
	MPI_Put(out, count, MPI_INT32_T, next, 0, count, MPI_INT32_T, win);
	MPI_Get(got, count, MPI_INT32_T, next, count, count, MPI_INT32_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < count; i++)
		bad += window[i] != value(last, 3, i) || got[i] != value(next, 7, i);
	check(bad == 0, "put and get", count, bad);

	/* All ranks add to the window of rank 0. */
	for (int i = 0; i < count; i++)
		window[i] = 0;
	MPI_Win_fence(0, win);
	MPI_Accumulate(out, count, MPI_INT32_T, 0, 0, count, MPI_INT32_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	bad = 0;
	for (int i = 0; rank == 0 && i < count; i++) {
		int32_t sum = 0;
		for (int r = 0; r < size; r++)
			sum += value(r, 3, i);
		bad += window[i] != sum;
	}
	check(bad == 0, "accumulate", count, bad);
	MPI_Win_free(&win);
	free(got);
	free(out);
}

/* Passive targets: a counter that all ranks draw tickets from, a lock by compare and swap,
 * exclusive and shared locks. */
static void passive(void)
{
	int64_t *window, one = 1, ticket, last = -1, sum = 0, total = 0;
	MPI_Win win;
	MPI_Win_allocate(4 * sizeof(*window), sizeof(*window), MPI_INFO_NULL, MPI_COMM_WORLD,
	                 &window, &win);
	memset(window, 0, 4 * sizeof(*window));
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		check(ticket > last, "tickets rise", (int)ticket, (int)last);
		sum += last = ticket;
	}
	int64_t zero = 0, me = rank + 1, seen;
	for (int i = 0; i < ROUNDS; i++) {
		do {
			MPI_Compare_and_swap(&me, &zero, &seen, MPI_INT64_T, 0, 1, win);
			MPI_Win_flush(0, win);
		} while (seen != 0);
		/* Not atomic: only who has the lock may. */
		int64_t count;
		MPI_Get(&count, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, win);
		MPI_Win_flush(0, win);
		count++;
		MPI_Put(&count, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, win);
		MPI_Win_flush(0, win);
		MPI_Compare_and_swap(&zero, &me, &seen, MPI_INT64_T, 0, 1, win);
		MPI_Win_flush(0, win);
		check(seen == me, "the lock was ours", (int)seen, (int)me);
	}
	MPI_Win_unlock_all(win);
	MPI_Allreduce(&sum, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	int64_t all = (int64_t)ROUNDS * size;
	check(total == all * (all - 1) / 2, "every ticket once", (int)total, (int)all);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&seen, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	check(seen == all, "counted under the lock", (int)seen, (int)all);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size > 16)
		MPI_Abort(MPI_COMM_WORLD, 2);
	ring();
	unexpected();
	static const int counts[] = {1, 7, 300, 4000, 50000};
	for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		reduce(counts[c]);
		all_to_all(counts[c]);
	}
	if (argc > 1) { /* any word: one-sided too */
		fenced(1);
		fenced(300);
		fenced(20000);
		passive();
	}
	int mine[2] = {wrong, checks}, all[2];
	MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0 && all[0] == 0)
		printf("ok: %d ranks, %d checks\n", size, all[1]);
	MPI_Finalize();
	return all[0] != 0;
}
