# Serves the seeded Redmine: ruby serve.rb PREPARED EPISODES PORT PARENT_PID
PREPARED, EPISODES, PORT, PARENT = ARGV
ENV['BUNDLE_FROZEN'] = 'true' # what was prepared is only read
require 'puma/cli'

def end_with(pid)
  Thread.new do
    loop do
      Process.kill(0, pid)
      sleep 1
    end
  rescue Errno::ESRCH
    Process.kill('TERM', Process.pid)
  rescue Errno::EPERM
    sleep 1
    retry
  end
end

end_with(Integer(PARENT))
Dir.chdir(PREPARED) # the repositories of the projects are named relative to it
Puma::CLI.new(
  ['--config', '-', '--environment', 'production', '--workers', '0', '--threads', '8:8',
   '--bind', "tcp://127.0.0.1:#{Integer(PORT)}", '--quiet', File.join(__dir__, 'config.ru')]
).run
