/* Copies that survive unmapped memory. The application may unmap memory that it registered.
 * Hardware would report an error, not kill the process, and so do we: while a thread copies, a
 * segmentation fault or bus error within the copied bytes ends the copy. Faults in mapped apertures
 * belong to their tracker (adapter/track). Every other fault goes to the handler that was installed
 * before ours.
 *
 * Short copies, which determine latency, use their own instructions, which the handler recognizes
 * by address: they need no preparation. Longer copies use the C library, within a sigsetjmp(). */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/track/track.h"
#include "base/crc.h"
#include "base/log.h"

/* What this thread is copying. Initial-exec: the handler must not allocate. */
struct attempt {
	sigjmp_buf jump;
	volatile sig_atomic_t active;
	volatile uint64_t address; /* the address that faulted */
};
static __thread struct attempt attempt __attribute__((tls_model("initial-exec")));

/* Copy up to MOVE_SHORT bytes; false when a fault ended it. In each step the loads come before the
 * stores, the two ends may overlap, and nothing is pushed: the handler can jump from any
 * instruction to fault_copy_gone. */
bool fault_copy(void *to, const void *from, size_t bytes) __attribute__((visibility("hidden")));
extern const char fault_copy_gone[] __attribute__((visibility("hidden")));
__asm__(".text\n"
        ".p2align 5\n"
        ".globl fault_copy\n"
        ".hidden fault_copy\n"
        ".type fault_copy, @function\n"
        "fault_copy:\n"
        ".cfi_startproc\n"
        "	movl $1, %eax\n"
        "	cmpq $16, %rdx\n"
        "	jae 3f\n"
        "	cmpl $8, %edx\n"
        "	jae 2f\n"
        "	cmpl $4, %edx\n"
        "	jae 1f\n"
        "	testl %edx, %edx\n"
        "	jz 9f\n"
        "	movzbl (%rsi), %ecx\n" /* 1 to 3: the first, the last, and the one in the middle */
        "	movzbl -1(%rsi,%rdx), %r8d\n"
        "	movq %rdx, %r9\n"
        "	shrq $1, %r9\n"
        "	movzbl (%rsi,%r9), %r10d\n"
        "	movb %cl, (%rdi)\n"
        "	movb %r10b, (%rdi,%r9)\n"
        "	movb %r8b, -1(%rdi,%rdx)\n"
        "	ret\n"
        "1:	movl (%rsi), %ecx\n"
        "	movl -4(%rsi,%rdx), %r8d\n"
        "	movl %ecx, (%rdi)\n"
        "	movl %r8d, -4(%rdi,%rdx)\n"
        "	ret\n"
        "2:	movq (%rsi), %rcx\n"
        "	movq -8(%rsi,%rdx), %r8\n"
        "	movq %rcx, (%rdi)\n"
        "	movq %r8, -8(%rdi,%rdx)\n"
        "	ret\n"
        "3:	movups -16(%rsi,%rdx), %xmm1\n" /* the end; then from the start, 16 at a time */
        "	leaq -16(%rdx), %r8\n"
        "	xorl %ecx, %ecx\n"
        "	jmp 5f\n"
        "4:	movups (%rsi,%rcx), %xmm0\n"
        "	movups %xmm0, (%rdi,%rcx)\n"
        "	addq $16, %rcx\n"
        "5:	cmpq %r8, %rcx\n"
        "	jb 4b\n"
        "	movups %xmm1, (%rdi,%r8)\n"
        "9:	ret\n"
        ".hidden fault_copy_gone\n"
        ".globl fault_copy_gone\n"
        "fault_copy_gone:\n"
        "	xorl %eax, %eax\n"
        "	ret\n"
        ".cfi_endproc\n"
        ".size fault_copy, .-fault_copy\n");

static struct sigaction former[2]; /* SIGSEGV, SIGBUS */
pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_fault(int number, siginfo_t *info, void *context)
{
	greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	bool copying = attempt.active || ((uintptr_t)*at >= (uintptr_t)fault_copy &&
	                                  (uintptr_t)*at < (uintptr_t)fault_copy_gone);
	/* A page of a mapped aperture. A copy of ours does not wait until it is there: it holds
	 * the lock that fetching needs. */
	if (number == SIGSEGV && info->si_code == SEGV_ACCERR &&
	    track_fault((uintptr_t)info->si_addr, !copying))
		return;
	if ((uintptr_t)*at >= (uintptr_t)fault_copy &&
	    (uintptr_t)*at < (uintptr_t)fault_copy_gone) {
		*at = (greg_t)(uintptr_t)fault_copy_gone;
		return;
	}
	if (attempt.active) {
		attempt.active = 0;
		attempt.address = (uint64_t)(uintptr_t)info->si_addr;
		/* A layer between the kernel and us (the thread sanitizer) may have blocked more
		 * signals than we asked for. The next fault must find the same mask as this one. */
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		siglongjmp(attempt.jump, 1);
	}
	const struct sigaction *before = &former[number == SIGBUS];
	if (before->sa_flags & SA_SIGINFO) {
		before->sa_sigaction(number, info, context);
	} else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
		before->sa_handler(number);
	} else {
		/* There is no other handler: the instruction faults again and kills the process. */
		struct sigaction die = {.sa_handler = SIG_DFL};
		sigaction(number, &die, NULL);
	}
}

int fault_install(void)
{
	static const int numbers[2] = {SIGSEGV, SIGBUS};
	int result = 0;
	pthread_mutex_lock(&install_lock);
	for (int i = 0; i < 2 && result == 0; i++) {
		struct sigaction now;
		if (sigaction(numbers[i], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
		    now.sa_sigaction == on_fault)
			continue;
		struct sigaction ours = {.sa_sigaction = on_fault,
		                         .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
		sigemptyset(&ours.sa_mask);
		former[i] = now;
		if (sigaction(numbers[i], &ours, NULL) != 0) {
			log_error("sigaction: %m");
			result = -HDL_EIO;
		}
	}
	pthread_mutex_unlock(&install_lock);
	return result;
}

/* Copy run by run. Kept out of the function with sigsetjmp so that its variables live in registers.
 */
__attribute__((noinline)) static void copy_runs(const struct span *to, size_t to_count,
                                                const struct span *from)
{
	struct span f = *from;
	for (size_t i = 0; i < to_count; i++) {
		struct span t = to[i];
		while (t.length > 0) {
			if (f.length == 0)
				f = *++from;
			uint64_t bytes = t.length < f.length ? t.length : f.length;
			memcpy((void *)(uintptr_t)t.addr, (const void *)(uintptr_t)f.addr, bytes);
			t.addr += bytes;
			t.length -= bytes;
			f.addr += bytes;
			f.length -= bytes;
		}
	}
}

static bool within(const struct span *runs, size_t count, uint64_t address)
{
	for (size_t i = 0; i < count; i++)
		if (address >= runs[i].addr && address - runs[i].addr < runs[i].length)
			return true;
	return false;
}

static enum move_result move_copy(void *context, enum move_side side, const struct span *to,
                                  size_t to_count, const struct span *from, size_t from_count)
{
	(void)context;
	(void)side; /* one address space: it makes no difference */
	(void)from_count;
	if (sigsetjmp(attempt.jump, 0) != 0)
		return within(to, to_count, attempt.address) ? MOVE_TARGET_GONE : MOVE_SOURCE_GONE;
	attempt.active = 1;
	atomic_signal_fence(memory_order_seq_cst);
	copy_runs(to, to_count, from);
	atomic_signal_fence(memory_order_seq_cst);
	attempt.active = 0;
	return MOVE_OK;
}

/* Kept apart like copy_runs(). @to NULL: only the CRC. */
__attribute__((noinline)) static uint32_t copy_crc(uint32_t crc, void *to, const void *from,
                                                   size_t bytes, bool castagnoli)
{
	if (to == NULL)
		return crc32c(crc, from, bytes);
	return castagnoli ? crc32c_copy(crc, to, from, bytes)
	                  : crc32_ieee_copy(crc, to, from, bytes);
}

static inline bool try_copy_crc(void *to, const void *from, size_t bytes, uint32_t *crc,
                                bool castagnoli)
{
	if (sigsetjmp(attempt.jump, 0) != 0)
		return false;
	attempt.active = 1;
	atomic_signal_fence(memory_order_seq_cst);
	*crc = copy_crc(*crc, to, from, bytes, castagnoli);
	atomic_signal_fence(memory_order_seq_cst);
	attempt.active = 0;
	return true;
}

static bool move_copy_crc(void *to, const void *from, size_t bytes, uint32_t *crc)
{
	return try_copy_crc(to, from, bytes, crc, false);
}

static bool move_copy_crc32c(void *to, const void *from, size_t bytes, uint32_t *crc)
{
	return try_copy_crc(to, from, bytes, crc, true);
}

static bool move_crc32c(const void *from, size_t bytes, uint32_t *crc)
{
	return try_copy_crc(NULL, from, bytes, crc, true);
}

static enum move_result move_atomic(void *context, enum move_side side, uint64_t addr, bool add,
                                    uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	(void)context;
	(void)side;
	_Atomic uint64_t *word = (_Atomic uint64_t *)(uintptr_t)addr;
	if (sigsetjmp(attempt.jump, 0) != 0)
		return MOVE_TARGET_GONE;
	attempt.active = 1;
	atomic_signal_fence(memory_order_seq_cst);
	if (add) {
		*old = atomic_fetch_add(word, compare_add);
	} else {
		uint64_t expected = compare_add;
		atomic_compare_exchange_strong(word, &expected, swap);
		*old = expected;
	}
	atomic_signal_fence(memory_order_seq_cst);
	attempt.active = 0;
	return MOVE_OK;
}

bool fault_copy_peer(void *context, enum move_side side, uint64_t own, uint64_t addr, size_t bytes)
{
	(void)context;
	void *ours = (void *)(uintptr_t)own, *theirs = (void *)(uintptr_t)addr;
	return side == MOVE_TO_PEER ? fault_copy(theirs, ours, bytes)
	                            : fault_copy(ours, theirs, bytes);
}

struct own_memory fault_own_memory(void)
{
	return (struct own_memory){.ops = {.copy = move_copy, .atomic = move_atomic},
	                           .copy_short = fault_copy,
	                           .copy_crc = move_copy_crc,
	                           .copy_crc32c = move_copy_crc32c,
	                           .crc32c = move_crc32c};
}

struct peer_memory fault_peer_memory(bool by_target)
{
	return (struct peer_memory){.ops = {.copy = move_copy, .atomic = move_atomic},
	                            .copy_short = by_target ? NULL : fault_copy_peer};
}

/* --- probing memory --- */

/* Without MADV_POPULATE_* (before Linux 5.14): ask /proc/self/maps. */
static bool mapped_by_list(uint64_t addr, uint64_t end, bool write)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	if (maps == NULL)
		return false;
	while (addr < end && fgets(line, sizeof(line), maps) != NULL) {
		unsigned long low, high;
		char rights[5];
		if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) != 3 || high <= addr)
			continue;
		if (low > addr || rights[0] != 'r' || (write && rights[1] != 'w'))
			break;
		addr = high;
	}
	fclose(maps);
	return addr >= end;
}

int fault_probe(uint64_t addr, uint64_t length, bool write)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	if (length == 0)
		return 0;
	if (length > UINT64_MAX - addr || addr + length > UINT64_MAX - page)
		return -HDL_EFAULT;
	uint64_t start = addr & ~(page - 1);
	uint64_t end = (addr + length + page - 1) & ~(page - 1);
	int result, saved = errno;
	do
		result = madvise((void *)(uintptr_t)start, end - start,
		                 write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	while (result != 0 && (errno == EINTR || errno == EAGAIN));
	/* EINVAL: the rights do not match, or the kernel does not know the call. EPERM, ENOSYS: a
	 * filter forbids it. */
	if (result != 0 && (errno == EINVAL || errno == EPERM || errno == ENOSYS) &&
	    mapped_by_list(start, end, write))
		result = 0;
	errno = saved;
	return result == 0 ? 0 : -HDL_EFAULT;
}
