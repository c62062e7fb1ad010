# Completion of heddle(1) for bash.
# The nodes and switches that run here.
_heddle_switches() {
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" vswitch show 2>/dev/null | sed -n 's/^\([A-Za-z][^ ,]*\),.*/\1/p')" -- "$cur")
}
_heddle() {
	local words cword cur prev command='' more='' i
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "run devices status explain perf pipe aperture vswitch ibc tap version help --help --version" -- "$cur")
		return
	fi
	command=${COMP_WORDS[1]}
	case $command in
	run)
		# What follows the program is the program's.
		for ((i = 2; i < COMP_CWORD; i++)); do
			case ${COMP_WORDS[i]} in
			-n | --node | -d | --device | -a | --addr | -l | --lmc | -c | --capture) ((i++)) ;;
			-*) ;;
			*)
				if declare -F _command_offset >/dev/null; then
					_command_offset "$i"
				else
					compopt -o default 2>/dev/null
				fi
				return
				;;
			esac
		done
		case $prev in
		-d | --device) mapfile -t COMPREPLY < <(compgen -W "heddle0 heddle_ib0 heddle_iw0" -- "$cur") ;;
		-n | --node | -a | --addr) ;;
		-l | --lmc) mapfile -t COMPREPLY < <(compgen -W "0 1 2 3 4 5 6 7" -- "$cur") ;;
		-c | --capture) compopt -o default 2>/dev/null ;;
		*)
			if [[ $cur == -* ]]; then
				mapfile -t COMPREPLY < <(compgen -W "-n --node -d --device -a --addr -l --lmc -c --capture -p --preload -s --stripe --help --usage --version" -- "$cur")
			else
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			fi
			;;
		esac
		;;
	tap)
		if ((COMP_CWORD == 2)); then
			mapfile -t COMPREPLY < <(compgen -W "unit host stat mac down --help" -- "$cur")
		elif [[ $cur == -* ]]; then
			case ${COMP_WORDS[2]} in
			unit) more="-l --lan -a --addr -N --netns -n --name -m --mtu -s --service -c --channel -O --no-offload \
					-K --macs -R --reserve -H --host-mac -f --foreground" ;;
			host)
				more="-t --tap -u --unix -N --netns -a --addr -n --name -M --mac -m --mtu -o --mode -d --model -p --pools \
					-i --indicate -c --channel -s --service -O --no-offload -b --bridge -w --no-wait -f --foreground"
				;;
			esac
			mapfile -t COMPREPLY < <(compgen -W "$more -j --json --help --usage --version" -- "$cur")
		else
			case ${COMP_WORDS[2]}$prev in
			unit-l | unit--lan)
				mapfile -t COMPREPLY < <(compgen -W "tap: packet: unix:" -- "$cur")
				compopt -o nospace 2>/dev/null
				;;
			host-u | host--unix) compopt -o default 2>/dev/null ;;
			host-o | host--mode) mapfile -t COMPREPLY < <(compgen -W "rdma send" -- "$cur") ;;
			host-d | host--model) mapfile -t COMPREPLY < <(compgen -W "push-push push-pull pull-pull" -- "$cur") ;;
			host-p | host--pools) mapfile -t COMPREPLY < <(compgen -W "both host unit none" -- "$cur") ;;
			unit-c | unit--channel) mapfile -t COMPREPLY < <(compgen -W "rocev2 cells" -- "$cur") ;;
			host-c | host--channel) mapfile -t COMPREPLY < <(compgen -W "rocev2 cells iwarp" -- "$cur") ;;
			host-i | host--indicate) mapfile -t COMPREPLY < <(compgen -W "immediate message" -- "$cur") ;;
			stat* | mac* | down*)
				mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" tap stat 2>/dev/null | sed -n 's/^\([^ :][^:]*\): .*/\1/p')" -- "$cur")
				;;
			esac
		fi
		;;
	devices)
		case $prev in
		-n | --node) ;;
		*) mapfile -t COMPREPLY < <(compgen -W "-j --json -n --node --help --usage --version" -- "$cur") ;;
		esac
		;;
	status)
		case $prev in
		-n | --node) ;;
		*) mapfile -t COMPREPLY < <(compgen -W "-j --json -n --node -w --watch --help --usage --version" -- "$cur") ;;
		esac
		;;
	explain)
		if ((COMP_CWORD == 2)); then
			mapfile -t COMPREPLY < <(compgen -W "vendor_err status errno event counter --help --usage --version" -- "$cur")
		else
			# The second word of each first line is the number, the third the name.
			mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" explain "${COMP_WORDS[2]}" 2>/dev/null |
				sed -n 's/^[a-z_]* [0-9]*, \([A-Za-z_]*\).*/\1/p')" -- "$cur")
		fi
		;;
	perf)
		case $prev in
		-o | --operation) mapfile -t COMPREPLY < <(compgen -W "send write read atomic" -- "$cur") ;;
		-c | --connection) mapfile -t COMPREPLY < <(compgen -W "RC UC UD" -- "$cur") ;;
		-s | --size) mapfile -t COMPREPLY < <(compgen -W "8 64 4k 64k 1m 8m" -- "$cur") ;;
		-n | --iterations | -q | --depth | -p | --port | -N | --node) ;;
		*)
			mapfile -t COMPREPLY < <(compgen -W "-o --operation -L --latency -B --bandwidth -s --size -a --all \
				-n --iterations -q --depth -c --connection -e --events -m --mapped -j --json -S --server -C --client \
				-p --port -N --node --help --usage --version" -- "$cur")
			;;
		esac
		;;
	pipe)
		[[ $prev == -l || $prev == --listen ]] || mapfile -t COMPREPLY < <(compgen -W "-l --listen --help --usage --version" -- "$cur")
		;;
	aperture)
		case $prev in
		-n | --node | -p | --pid) ;;
		*)
			((COMP_CWORD == 2)) && more="status criteria"
			[[ ${COMP_WORDS[2]} == criteria ]] && more="blocked errors failures nobody connect accept reject close alive aliveack \
				error status data var all none"
			mapfile -t COMPREPLY < <(compgen -W "$more -j --json -n --node -p --pid --help --usage --version" -- "$cur")
			;;
		esac
		;;
	vswitch)
		if ((COMP_CWORD == 2)); then
			mapfile -t COMPREPLY < <(compgen -W "up down show cut heal --help" -- "$cur")
			return
		fi
		case $prev in
		-n | --node) return ;;
		-w | --capture)
			compopt -o default 2>/dev/null
			return
			;;
		esac
		if [[ $cur == -* ]]; then
			case ${COMP_WORDS[2]} in
			up) mapfile -t COMPREPLY < <(compgen -W "-j --json -n --node -w --capture --help --usage --version" -- "$cur") ;;
			down) mapfile -t COMPREPLY < <(compgen -W "-j --json --help --usage --version" -- "$cur") ;;
			show | cut | heal) mapfile -t COMPREPLY < <(compgen -W "-j --json -n --node --help --usage --version" -- "$cur") ;;
			esac
		elif [[ ${COMP_WORDS[2]} == up ]]; then
			compopt -o default 2>/dev/null
		elif [[ ${COMP_WORDS[2]} == down || ${COMP_WORDS[2]} == show ]]; then
			_heddle_switches
		fi
		;;
	ibc)
		if ((COMP_CWORD == 2)); then
			mapfile -t COMPREPLY < <(compgen -W "ping trace discover route key --help" -- "$cur")
			return
		fi
		case $prev in
		-f | --file | --svg | --conf)
			compopt -o default 2>/dev/null
			return
			;;
		-n | --node | -k | --key | -t | --timeout | -c | --count | -s | --size) return ;;
		esac
		if [[ $cur == -* ]]; then
			case ${COMP_WORDS[2]} in
			ping) more="-t --timeout -c --count -s --size" ;;
			trace) more="-k --key -t --timeout" ;;
			discover) more="-k --key --svg --conf" ;;
			route) more="-k --key" ;;
			esac
			if [[ ${COMP_WORDS[2]} == key ]]; then
				mapfile -t COMPREPLY < <(compgen -W "-j --json --help --usage --version" -- "$cur")
				return
			fi
			mapfile -t COMPREPLY < <(compgen -W "-n --node -f --file -j --json $more --help --usage --version" -- "$cur")
		elif [[ ${COMP_WORDS[2]} != discover && ${COMP_WORDS[2]} != key ]]; then
			_heddle_switches
		fi
		;;
	help)
		((COMP_CWORD == 2)) && mapfile -t COMPREPLY < <(compgen -W "run devices status explain perf pipe aperture vswitch ibc tap version help" -- "$cur")
		;;
	esac
}
complete -F _heddle heddle
