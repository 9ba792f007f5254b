# Serves the seeded Redmine: ruby serve.rb PREPARED EPISODES PORT PARENT_PID
PREPARED, EPISODES, PORT, PARENT = ARGV
ENV['BUNDLE_FROZEN'] = 'true' # what was prepared is only read
require 'puma/cli'

# Ends this process at once when another is gone. An own parent that died is recognised by adoption: its
# id may still exist as a zombie.
def end_with(pid)
  is_own_parent = Process.ppid == pid
  Thread.new do
    sleep 1 while exists(pid) && (!is_own_parent || Process.ppid == pid)
    exit!(0)
  end
end

def exists(pid)
  Process.kill(0, pid)
  true
rescue Errno::EPERM
  true
rescue Errno::ESRCH
  false
end

end_with(Integer(PARENT))
Dir.chdir(PREPARED) # the repositories of the projects are named relative to it
Puma::CLI.new(
  ['--config', '-', '--environment', 'production', '--workers', '0', '--threads', '8:8',
   '--bind', "tcp://127.0.0.1:#{Integer(PORT)}", '--quiet', File.join(__dir__, 'config.ru')]
).run
