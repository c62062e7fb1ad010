/* Runs a program under what containers impose: namespaces, a filter on system calls, no
 * capabilities, small file systems, low limits. An ordinary user can do all of it where the kernel
 * lets users make namespaces; where it does not, this exits with 77 and says so.
 *
 *   confine [OPTION...] PROGRAM [ARGUMENT...]
 *
 *   --refuse CALL,...     these system calls fail with EPERM
 *   --missing CALL,...    these fail with ENOSYS
 *   --user ID             a user namespace, in which we are ID
 *   --pid                 a PID namespace with its own /proc; the program is process 1
 *   --net                 a network namespace with nothing but a loopback interface that is down
 *   --no-proc             nothing in /proc
 *   --empty PATH          an empty directory in place of PATH, that cannot be written to
 *   --tmpfs PATH=BYTES    a file system of so many bytes in place of PATH
 *   --read-only PATH      everything can be read alone, but for what is below PATH
 *   --limit NAME=N        nofile, as, memlock, nproc */
#include <errno.h>
#include <getopt.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIP     77
#define FILTERS  400
#define MAX_LIST 16

struct name {
	const char *name;
	long number;
	unsigned which; /* argument tells, if @option is not 0, */
	uint32_t option;
};

static const struct name calls[] = {
        {"process_vm_readv", SYS_process_vm_readv, 0, 0},
        {"process_vm_writev", SYS_process_vm_writev, 0, 0},
        {"ptrace", SYS_ptrace, 0, 0},
        {"kcmp", SYS_kcmp, 0, 0},
        {"membarrier", SYS_membarrier, 0, 0},
        {"memfd_create", SYS_memfd_create, 0, 0},
        {"pidfd_open", SYS_pidfd_open, 0, 0},
        {"pidfd_getfd", 438, 0, 0},
        {"pidfd_send_signal", SYS_pidfd_send_signal, 0, 0},
        {"userfaultfd", SYS_userfaultfd, 0, 0},
        {"io_uring_setup", SYS_io_uring_setup, 0, 0},
        {"bpf", SYS_bpf, 0, 0},
        {"unshare", SYS_unshare, 0, 0},
        {"setns", SYS_setns, 0, 0},
        {"clone3", SYS_clone3, 0, 0},
        {"close_range", 436, 0, 0},
        {"sched_setscheduler", SYS_sched_setscheduler, 0, 0},
        {"sched_setaffinity", SYS_sched_setaffinity, 0, 0},
        {"mlock", SYS_mlock, 0, 0},
        {"madvise", SYS_madvise, 0, 0},
        {"flock", SYS_flock, 0, 0},
        {"recvmmsg", SYS_recvmmsg, 0, 0},
        {"sendmmsg", SYS_sendmmsg, 0, 0},
        {"ptracer", SYS_prctl, 0, PR_SET_PTRACER},
        {"statx", SYS_statx, 0, 0},
        {"faccessat2", 439, 0, 0},
        {"rseq", SYS_rseq, 0, 0},
        {"sndbufforce", SYS_setsockopt, 2, SO_SNDBUFFORCE},
        {"rcvbufforce", SYS_setsockopt, 2, SO_RCVBUFFORCE},
        {"reuseport-program", SYS_setsockopt, 2, SO_ATTACH_REUSEPORT_CBPF},
        {"filter-program", SYS_setsockopt, 2, SO_ATTACH_FILTER},
        {"peer-pidfd", SYS_getsockopt, 2, 77},     /* SO_PEERPIDFD, Linux 6.5 */
        {"pidfd-info", SYS_ioctl, 1, 0xc040ff0bu}, /* PIDFD_GET_INFO, Linux 6.13 */
        {NULL, 0, 0, 0}};

static struct options {
	bool pid, net, proc, user, read_only;
	unsigned id;
	const char *writable;
	const char *empty[MAX_LIST], *tmpfs[MAX_LIST], *limits[MAX_LIST];
	unsigned empties, tmpfses, limit_count;
} options = {.proc = true};

static struct sock_filter filter[FILTERS];
static unsigned filter_length;
static volatile pid_t child;

static void die(int status, const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", status == SKIP ? "skipped" : "confine", what,
	        strerror(errno));
	exit(status);
}

static void emit(struct sock_filter one)
{
	if (filter_length == FILTERS) {
		errno = E2BIG;
		die(1, "filter");
	}
	filter[filter_length++] = one;
}

static void begin_filter(void)
{
#ifdef __x86_64__
	uint32_t own = AUDIT_ARCH_X86_64;
#else
	uint32_t own = AUDIT_ARCH_AARCH64;
#endif
	emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                  offsetof(struct seccomp_data, arch)));
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own, 1, 0));
	emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

static void refuse(const struct name *call, int error)
{
	emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                  offsetof(struct seccomp_data, nr)));
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call->number, 0,
	                                  call->option != 0 ? 3 : 1));
	if (call->option != 0) {
		emit((struct sock_filter)BPF_STMT(
		        BPF_LD | BPF_W | BPF_ABS,
		        (uint32_t)(offsetof(struct seccomp_data, args) + call->which * 8)));
		emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call->option, 0, 1));
	}
	emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error));
}

static void refuse_all(char *list, int error)
{
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		const struct name *at = calls;
		while (at->name != NULL && strcmp(at->name, word) != 0)
			at++;
		if (at->name == NULL) {
			errno = EINVAL;
			die(1, word);
		}
		refuse(at, error);
	}
}

static void install_filter(void)
{
	emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	struct sock_fprog program = {.len = (unsigned short)filter_length, .filter = filter};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		die(SKIP, "a filter on system calls");
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
		die(SKIP, path);
}

static void map_ids(unsigned uid, unsigned gid)
{
	char text[64];
	write_file("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1", options.id, uid);
	write_file("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "%u %u 1", options.id, gid);
	write_file("/proc/self/gid_map", text);
}

static void enter_namespaces(void)
{
	unsigned uid = geteuid(), gid = getegid();
	bool mounts = options.pid || !options.proc || options.empties + options.tmpfses > 0 ||
	              options.read_only;
	int flags = (options.pid ? CLONE_NEWPID : 0) | (options.net ? CLONE_NEWNET : 0) |
	            (mounts ? CLONE_NEWNS : 0);
	if (options.user || (flags != 0 && uid != 0)) {
		if (!options.user)
			options.id = uid;
		if (unshare(CLONE_NEWUSER) != 0)
			die(SKIP, "a user namespace");
		map_ids(uid, gid);
	}
	if (flags != 0 && unshare(flags) != 0)
		die(SKIP, "namespaces");
	if (mounts && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		die(SKIP, "mounts of our own");
}

static void set_up_files(void)
{
	char size[64];
	if (options.pid && options.proc && mount("proc", "/proc", "proc", 0, NULL) != 0)
		die(SKIP, "/proc of our own");
	for (unsigned i = 0; i < options.tmpfses; i++) {
		char *path = strdup(options.tmpfs[i]), *bytes = strchr(path, '=');
		*bytes++ = '\0';
		snprintf(size, sizeof(size), "size=%s,mode=1777", bytes);
		if (mount("tmpfs", path, "tmpfs", 0, size) != 0)
			die(SKIP, path);
		free(path);
	}
	if (options.read_only) {
		struct mount_attr set = {.attr_set = MOUNT_ATTR_RDONLY};
		struct mount_attr clear = {.attr_clr = MOUNT_ATTR_RDONLY};
		if (mount(options.writable, options.writable, NULL, MS_BIND, NULL) != 0 ||
		    syscall(SYS_mount_setattr, -1, "/", AT_RECURSIVE, &set, sizeof(set)) != 0 ||
		    syscall(SYS_mount_setattr, -1, options.writable, 0, &clear, sizeof(clear)) != 0)
			die(SKIP, "a file system that can be read alone");
	}
	for (unsigned i = 0; i < options.empties; i++)
		if (mount("tmpfs", options.empty[i], "tmpfs", MS_RDONLY, "mode=755") != 0)
			die(SKIP, options.empty[i]);
	if (!options.proc && mount("tmpfs", "/proc", "tmpfs", MS_RDONLY, "mode=755") != 0)
		die(SKIP, "/proc");
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	for (unsigned long i = 0; i < 64; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* those that the kernel does not know, too */
	if (syscall(SYS_capset, &header, none) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		die(SKIP, "no capabilities");
}

static void set_limits(void)
{
	static const struct {
		const char *name;
		int which;
	} names[] = {{"nofile=", RLIMIT_NOFILE},
	             {"as=", RLIMIT_AS},
	             {"memlock=", RLIMIT_MEMLOCK},
	             {"nproc=", RLIMIT_NPROC}};
	for (unsigned i = 0; i < options.limit_count; i++)
		for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
			const char *text = options.limits[i];
			size_t length = strlen(names[j].name);
			if (strncmp(text, names[j].name, length) != 0)
				continue;
			rlim_t value = strtoull(text + length, NULL, 0);
			struct rlimit limit = {value, value};
			if (setrlimit((__rlimit_resource_t)names[j].which, &limit) != 0)
				die(SKIP, text);
		}
}

static void run(char **argv)
{
	set_up_files();
	drop_capabilities();
	set_limits();
	install_filter();
	execvp(argv[0], argv);
	die(127, argv[0]);
}

static void pass_on(int number)
{
	if (child > 0)
		kill(child, number == SIGINT ? SIGINT : SIGKILL);
}

static void parse(int argc, char **argv)
{
	static const struct option list[] = {{"refuse", 1, NULL, 'r'},
	                                     {"missing", 1, NULL, 'm'},
	                                     {"user", 1, NULL, 'u'},
	                                     {"pid", 0, NULL, 'p'},
	                                     {"net", 0, NULL, 'n'},
	                                     {"no-proc", 0, NULL, 'P'},
	                                     {"empty", 1, NULL, 'e'},
	                                     {"tmpfs", 1, NULL, 't'},
	                                     {"read-only", 1, NULL, 'R'},
	                                     {"limit", 1, NULL, 'l'},
	                                     {0}};
	int option;
	while ((option = getopt_long(argc, argv, "+", list, NULL)) != -1) {
		if (option == 'r' || option == 'm')
			refuse_all(optarg, option == 'r' ? EPERM : ENOSYS);
		else if (option == 'u')
			options.user = true, options.id = (unsigned)atoi(optarg);
		else if (option == 'p')
			options.pid = true;
		else if (option == 'n')
			options.net = true;
		else if (option == 'P')
			options.proc = false;
		else if (option == 'e' && options.empties < MAX_LIST)
			options.empty[options.empties++] = optarg;
		else if (option == 't' && options.tmpfses < MAX_LIST)
			options.tmpfs[options.tmpfses++] = optarg;
		else if (option == 'l' && options.limit_count < MAX_LIST)
			options.limits[options.limit_count++] = optarg;
		else if (option == 'R')
			options.read_only = true, options.writable = optarg;
		else
			exit(2);
	}
	if (optind == argc)
		exit(2);
}

int main(int argc, char **argv)
{
	begin_filter();
	parse(argc, argv);
	enter_namespaces();
	if (!options.pid)
		run(argv + optind);
	child = fork();
	if (child < 0)
		die(SKIP, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(argv + optind);
	}
	struct sigaction action = {.sa_handler = pass_on};
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	int status;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
