/* Questions from `heddle tap' to the processes that it started: one socket per process in the
 * agent's folder, which only this user can enter. A question and its answer are one JSON text each.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "port/rundir.h"
#include "port/unixsock.h"
#include "tap/tap.h"

#define CONTROL_ANSWER_S 10 /* how long a process may take to answer */

static bool control_path(const char *name, char *out, size_t bytes, char *why)
{
	char directory[RUNDIR_MAX], file[TAP_NAME_BYTES + 16];
	int error = rundir_open(directory, NULL);
	if (error != 0) {
		snprintf(why, LAN_WHY_BYTES, "%s: %s: %s", directory, strerror(-error),
		         rundir_advice(error));
		return false;
	}
	snprintf(file, sizeof(file), "tap-%.*s.sock", (int)TAP_NAME_BYTES, name);
	rundir_file(directory, file, out, bytes);
	return true;
}

/* Send @question, a JSON text, and receive the answer, *got bytes of it. */
static char *control_exchange(int sock, const char *question, ssize_t *got)
{
	struct timeval limit = {.tv_sec = CONTROL_ANSWER_S};
	int fds[UNIXSOCK_MAX_FDS], count = 0;
	char *reply = malloc(TAP_MESSAGE_BYTES);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	*got = -ENOMEM;
	if (reply != NULL)
		*got = unixsock_send(sock, question, strlen(question), NULL, 0);
	if (*got == 0)
		*got = unixsock_receive(sock, reply, TAP_MESSAGE_BYTES, fds, &count);
	while (count > 0)
		close(fds[--count]);
	return reply;
}

/* Does a process with our name run? One that was killed may not have ended yet: its socket still
 * takes connections, but it does not answer, and the connection breaks when the kernel has cleaned
 * up. */
static bool control_is_taken(const char *path)
{
	ssize_t got = 0;
	/* It hangs up without an answer when it ends, or when it has too many clients: then it
	 * does so again. */
	for (unsigned tries = 0; got <= 0 && got != -EAGAIN && tries < TAP_MAX_CLIENTS; tries++) {
		int other = unixsock_connect(path);
		if (other < 0)
			return false;
		free(control_exchange(other, "{\"do\":\"who\"}", &got));
		close(other);
	}
	return true;
}

bool control_open(struct tap *tap)
{
	for (unsigned i = 0; i < TAP_MAX_CLIENTS; i++)
		tap->clients[i] = -1;
	tap->control = -1;
	if (!control_path(tap->options->name, tap->control_path, sizeof(tap->control_path),
	                  tap->why))
		return false;
	if (control_is_taken(tap->control_path)) {
		snprintf(tap->why, sizeof(tap->why),
		         "'%s' runs already; `heddle tap down %s' ends it, --name gives another "
		         "name",
		         tap->options->name, tap->options->name);
		tap->control_path[0] = '\0';
		return false;
	}
	unlink(tap->control_path); /* of one that was killed */
	tap->control = unixsock_listen(tap->control_path);
	if (tap->control < 0) {
		snprintf(tap->why, sizeof(tap->why), "%.100s: %s", tap->control_path,
		         strerror(-tap->control));
		return false;
	}
	tap_watch(tap, tap->control, EPOLLIN);
	return true;
}

void control_close(struct tap *tap)
{
	if (tap->control >= 0) {
		unlink(tap->control_path);
		close(tap->control);
	}
	/* Last: who asked us to end waits for that. */
	for (unsigned i = 0; i < TAP_MAX_CLIENTS; i++)
		if (tap->clients[i] >= 0)
			close(tap->clients[i]);
}

static void control_accept(struct tap *tap)
{
	int client = accept4(tap->control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	for (unsigned i = 0; i < TAP_MAX_CLIENTS && client >= 0; i++) {
		if (tap->clients[i] >= 0)
			continue;
		tap->clients[i] = client;
		tap_watch(tap, client, EPOLLIN);
		return;
	}
	if (client >= 0)
		close(client);
}

void tap_reply(struct tap *tap, int client, json_t *answer)
{
	for (unsigned i = 0; i < TAP_MAX_CLIENTS; i++) {
		if (tap->clients[i] != client)
			continue;
		char *text = json_dumps(answer, JSON_COMPACT);
		if (text != NULL)
			unixsock_send(client, text, strlen(text), NULL, 0);
		free(text);
	}
	json_decref(answer);
}

bool control_event(struct tap *tap, int fd)
{
	static char text[TAP_MESSAGE_BYTES];
	if (fd == tap->control) {
		control_accept(tap);
		return true;
	}
	for (unsigned i = 0; i < TAP_MAX_CLIENTS; i++) {
		int fds[UNIXSOCK_MAX_FDS], count = 0;
		if (tap->clients[i] != fd)
			continue;
		ssize_t got = unixsock_receive(fd, text, sizeof(text) - 1, fds, &count);
		while (count > 0)
			close(fds[--count]);
		if (got <= 0 && got != -EAGAIN) {
			close(fd);
			tap->clients[i] = -1;
		} else if (got > 0) {
			json_t *question = json_loadb(text, (size_t)got, 0, NULL);
			const char *what = json_string_value(json_object_get(question, "do"));
			json_t *answer = what == NULL ? tap_error("not a question")
			                              : tap->role->ask(tap, fd, what, question);
			json_decref(question);
			if (answer != NULL)
				tap_reply(tap, fd, answer);
		}
		return true;
	}
	return false;
}

json_t *control_ask(const char *name, json_t *question, bool until_end, char *why)
{
	char path[128], *text = json_dumps(question, JSON_COMPACT);
	json_decref(question);
	if (text == NULL || !control_path(name, path, sizeof(path), why)) {
		free(text);
		return NULL;
	}
	json_t *answer = NULL;
	int sock = unixsock_connect(path);
	if (sock < 0) {
		snprintf(why, LAN_WHY_BYTES,
		         "nothing called '%s' runs; `heddle tap stat' lists what does", name);
	} else {
		ssize_t got;
		int fds[UNIXSOCK_MAX_FDS], count = 0;
		char *reply = control_exchange(sock, text, &got);
		answer = got > 0 ? json_loadb(reply, (size_t)got, 0, NULL) : NULL;
		if (answer == NULL)
			snprintf(why, LAN_WHY_BYTES, "'%s' does not answer", name);
		else if (until_end) /* the socket is the last thing that it closes */
			unixsock_receive(sock, reply, TAP_MESSAGE_BYTES, fds, &count);
		free(reply);
		close(sock);
	}
	free(text);
	return answer;
}

size_t control_list(char names[][TAP_NAME_BYTES], size_t max)
{
	char directory[RUNDIR_MAX];
	DIR *folder = rundir_open(directory, NULL) == 0 ? opendir(directory) : NULL;
	struct dirent *entry;
	size_t count = 0;
	while (folder != NULL && count < max && (entry = readdir(folder)) != NULL) {
		size_t length = strlen(entry->d_name);
		char path[128];
		if (strncmp(entry->d_name, "tap-", 4) != 0 || length < 10 ||
		    strcmp(entry->d_name + length - 5, ".sock") != 0 ||
		    length - 9 >= TAP_NAME_BYTES)
			continue;
		rundir_file(directory, entry->d_name, path, sizeof(path));
		int sock = unixsock_connect(path);
		if (sock < 0)
			continue;
		close(sock);
		memcpy(names[count], entry->d_name + 4, length - 9);
		names[count++][length - 9] = '\0';
	}
	if (folder != NULL)
		closedir(folder);
	return count;
}

/* --- pieces of answers --- */

void tap_print_json(json_t *whole)
{
	json_dumpf(whole, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(whole);
}

void tap_print_started(const struct tap_options *options, pid_t pid, bool up)
{
	tap_print_json(json_pack("{s:s,s:s,s:i,s:b,s:s}", "started", options->name, "role",
	                         options->unit ? "unit" : "host", "pid", (int)pid, "up", up,
	                         "interface", options->lan));
	fflush(stdout); /* this process may go on */
}

json_t *tap_error(const char *text)
{
	return json_pack("{s:s}", "error", text);
}

json_t *tap_mac_json(const uint8_t mac[LAN_MAC_BYTES])
{
	return json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
	                    mac[5]);
}

bool tap_parse_mac(const char *text, uint8_t mac[LAN_MAC_BYTES])
{
	unsigned parts[LAN_MAC_BYTES];
	int end = 0;
	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &parts[0], &parts[1], &parts[2], &parts[3],
	           &parts[4], &parts[5], &end) != 6 ||
	    text[end] != '\0')
		return false;
	for (unsigned i = 0; i < LAN_MAC_BYTES; i++)
		mac[i] = (uint8_t)parts[i];
	return !macs_is_group(mac);
}

const char *tap_way(const struct hdl_push *push)
{
	static const char *const names[HDL_PUSH_WAY_COUNT] = {[HDL_PUSH_LANES] = "lanes",
	                                                      [HDL_PUSH_ROCEV2] = "rocev2",
	                                                      [HDL_PUSH_CELLS] = "cells",
	                                                      [HDL_PUSH_IWARP] = "iwarp"};
	return names[hdl_push_way(push)];
}

json_t *tap_counters(const struct hdl_push *push)
{
	const char *const *names;
	const uint64_t *values;
	size_t count = hdl_push_counters(push, &names, &values);
	json_t *all = json_object();
	for (size_t i = 0; i < count; i++)
		json_object_set_new(all, names[i], json_integer((json_int_t)values[i]));
	return all;
}

json_t *tap_lan_json(const struct lan *lan)
{
	return json_pack("{s:s,s:s,s:b,s:b,s:i,s:I,s:I,s:I,s:I,s:I}", "kind", lan->kind->name,
	                 "where", lan->where, "there", lan->fd >= 0, "link", lan_is_up(lan), "mtu",
	                 (int)lan->link.mtu, "rx_frames", (json_int_t)lan->rx_frames, "rx_bytes",
	                 (json_int_t)lan->rx_bytes, "tx_frames", (json_int_t)lan->tx_frames,
	                 "tx_bytes", (json_int_t)lan->tx_bytes, "dropped",
	                 (json_int_t)lan->dropped);
}
